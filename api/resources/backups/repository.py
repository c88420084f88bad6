"""Queries of backups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.backups import Backup


async def every(db: AsyncSession) -> Sequence[Backup]:
    """Return all backups, the newest first."""
    return (await db.scalars(select(Backup).order_by(Backup.position))).all()


async def replace(db: AsyncSession, backups: Iterable[Backup]) -> None:
    """Put these in the place of all that were known."""
    await db.execute(delete(Backup))
    db.add_all(backups)
