"""The load of the site in a few numbers: how many sessions there are by state, and what they hold of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.nodes import Gpu
from api.tables.sessions import HOLDING, LIVE, Session, State


@dataclass(frozen=True)
class Load:
    """Sessions that have not ended by their states, and the milli-GPU that there are and that these hold."""

    sessions: Mapping[State, int]
    gpu_milli: int
    held_milli: int


async def read(db: AsyncSession) -> Load:
    """Return the load of now."""
    query = select(Session.state, func.count(), func.sum(Session.held_milli)).where(LIVE).group_by(Session.state)
    found = {state: (count, int(milli)) for state, count, milli in await db.execute(query)}
    there = await db.scalar(select(func.coalesce(func.sum(Gpu.capacity_milli), 0)))
    held = sum(milli for state, (_, milli) in found.items() if state in HOLDING)
    return Load({state: count for state, (count, _) in found.items()}, int(there or 0), held)
