"""Queries of repair runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.repairs import RepairRun


async def ordered_by(db: AsyncSession, name: str, node: str | None, since: datetime) -> Sequence[RepairRun]:
    """Return all runs that somebody has ordered for a node, or for all, since a moment."""
    query = select(RepairRun).where(RepairRun.user_name == name, RepairRun.node.is_not_distinct_from(node))
    query = query.where(RepairRun.created_at >= since)
    return (await db.scalars(query.order_by(RepairRun.created_at, RepairRun.id))).all()
