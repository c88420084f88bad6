"""Spare GPUs that each project had lately beyond its quota, the less the longer ago."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import and_, case, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.projects import Project
from api.tables.sessions import HOLDS, Session

COUNT_S = 60.0
"""So often it is counted what projects have; what begins and ends in between is not."""


async def move(db: AsyncSession, step: timedelta) -> None:
    """Move up to when it was counted, as the clock was set by so much: that is no time in which anything was held."""
    query = update(Project).values(had_at=Project.had_at + step)
    await db.execute(query, execution_options={"synchronize_session": False})


async def count(db: AsyncSession, at: datetime, half_life_s: int) -> None:
    """Bring the averages of all projects up to a moment, as if they had had all the time what they have now.

    It depends on nothing but the rows: what was not counted while nobody led is made up for.
    """
    holds = select(func.coalesce(func.sum(Session.held_milli), 0)).where(Session.project_id == Project.id, HOLDS)
    is_active = and_(Project.starts_at <= at, or_(Project.ends_at.is_(None), Project.ends_at > at))
    beyond = func.greatest(0, holds.scalar_subquery() - case((is_active, Project.quota_milli), else_=0))
    moment = literal(at, Project.had_at.type)
    seconds = func.greatest(0, func.extract("epoch", moment - func.coalesce(Project.had_at, moment)))
    counts = 1 - func.power(0.5, seconds / half_life_s)
    values = {"had_milli": Project.had_milli + (beyond - Project.had_milli) * counts, "had_at": at}
    await db.execute(update(Project).values(**values).execution_options(synchronize_session=False))
