"""States of domains: what the projects of one may hold together, as the scheduler knows it."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.domains import service
from api.scheduler.snapshot import DomainState
from api.tables.projects import Project


async def sharing(db: AsyncSession, known: Iterable[Project]) -> tuple[DomainState, ...]:
    """Return the domains whose projects share inside of them; where no project has a domain nothing is read."""
    found = await service.that_share(db) if any(project.domain for project in known) else ()
    return tuple(
        DomainState(each.name, each.quota_milli or 0, each.over_quota_weight, each.limit_milli) for each in found
    )
