"""The database as endpoints get it: a transaction that ends before the answer is sent, or a session for reading."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.database import Database
from api.endpoints import auditing


# What requests depend on is made by coroutines, however short: FastAPI hands all else to threads, where it waits.
async def database_of(connection: HTTPConnection) -> Database:
    """Return the application's database."""
    database: Database = connection.app.state.database
    return database


async def _transaction(
    connection: HTTPConnection, database: Annotated[Database, Depends(database_of)]
) -> AsyncIterator[AsyncSession]:
    async with database.transaction() as db:
        await auditing.begin(db, connection)
        yield db


async def _reading(database: Annotated[Database, Depends(database_of)]) -> AsyncIterator[AsyncSession]:
    async with database.reading() as db:
        yield db


DatabaseOf = Annotated[Database, Depends(database_of)]
# The scope ends a transaction before the answer is sent: what a client was told is in the database.
Transaction = Annotated[AsyncSession, Depends(_transaction, scope="function")]
Reading = Annotated[AsyncSession, Depends(_reading, scope="function")]
