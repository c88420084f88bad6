"""Queries of backups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.backups import Backup, BackupOrder
from common.backup_protocol import BackupOrderState


async def every(db: AsyncSession) -> Sequence[Backup]:
    """Return all backups, the newest first."""
    return (await db.scalars(select(Backup).order_by(Backup.position))).all()


async def replace(db: AsyncSession, backups: Iterable[Backup]) -> None:
    """Put these in the place of all that were known."""
    await db.execute(delete(Backup))
    db.add_all(backups)


async def orders(db: AsyncSession, most: int) -> Sequence[BackupOrder]:
    """Return the last orders, the latest first."""
    query = select(BackupOrder).order_by(BackupOrder.created_at.desc(), BackupOrder.id).limit(most)
    return (await db.scalars(query)).all()


async def by_id(db: AsyncSession, identity: UUID, *, locked: bool = False) -> BackupOrder | None:
    """Return an order, locked until the transaction ends where that is said."""
    return await db.get(BackupOrder, identity, with_for_update=locked or None)


async def ordered(db: AsyncSession) -> BackupOrder | None:
    """Return the oldest order that the controller has not begun, locked until the transaction ends."""
    waiting = select(BackupOrder).where(BackupOrder.status == BackupOrderState.ORDERED).with_for_update()
    return (await db.scalars(waiting.order_by(BackupOrder.created_at, BackupOrder.id).limit(1))).one_or_none()


def add(db: AsyncSession, order: BackupOrder) -> None:
    """Add an order to the transaction."""
    db.add(order)
