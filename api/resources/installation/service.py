"""The id of this installation, made when somebody first asks for it."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from api.database import Database
from api.tables.installation import Installation


async def own_id(database: Database) -> UUID:
    """Return the id, which stays."""
    async with database.reading() as db:
        found = await db.scalar(select(Installation.id))
    if found is None:
        async with database.transaction() as db:
            # another process may have been sooner
            await db.execute(insert(Installation).values(is_own=True).on_conflict_do_nothing())
            found = (await db.scalars(select(Installation.id))).one()
    return found
