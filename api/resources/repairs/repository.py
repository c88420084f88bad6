"""Queries of repair runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.repairs import RepairRun
from common.repairs import RunState


async def latest(db: AsyncSession, most: int) -> Sequence[RepairRun]:
    """Return the last runs, the latest first."""
    return (await db.scalars(select(RepairRun).order_by(RepairRun.created_at.desc(), RepairRun.id).limit(most))).all()


async def ordered_by(db: AsyncSession, name: str, node: str | None, since: datetime) -> Sequence[RepairRun]:
    """Return all runs that somebody has ordered for a node, or for all, since a moment."""
    query = select(RepairRun).where(RepairRun.user_name == name, RepairRun.node.is_not_distinct_from(node))
    query = query.where(RepairRun.created_at >= since)
    return (await db.scalars(query.order_by(RepairRun.created_at, RepairRun.id))).all()


async def by_id(db: AsyncSession, identity: UUID, *, locked: bool = False) -> RepairRun | None:
    """Return a run, locked until the transaction ends where that is said."""
    return await db.get(RepairRun, identity, with_for_update=locked or None)


async def ordered(db: AsyncSession) -> RepairRun | None:
    """Return the oldest run that the controller has not begun, locked until the transaction ends."""
    waiting = select(RepairRun).where(RepairRun.status == RunState.ORDERED).with_for_update()
    return (await db.scalars(waiting.order_by(RepairRun.created_at, RepairRun.id).limit(1))).one_or_none()


def add(db: AsyncSession, run: RepairRun) -> None:
    """Add a run to the transaction."""
    db.add(run)
