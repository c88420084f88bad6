"""Steps of the schema, tried on a database of their own."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from api.database import Database


async def try_step(url: str, there_and_back: Callable[[Connection], None]) -> None:
    """Go a step and back again, in one transaction on an empty database."""
    database = Database(url)
    try:
        async with database.engine.begin() as connection:
            await connection.run_sync(there_and_back)
    finally:
        await database.close()
