"""Queries of projects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from uuid import UUID

from sqlalchemy import ColumnElement, Select, bindparam, false, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.auth.identity import Reach
from api.resources.projects.capacity import QuotaPeriod
from api.tables.domains import Domain
from api.tables.groups import ResourceGroup, group_projects
from api.tables.nodes import Gpu, Node
from api.tables.projects import Project


async def by_name(db: AsyncSession, name: str, *, people: bool = False, lock: bool = False) -> Project | None:
    """Return the project of that name, with its `people`; `lock` keeps new sessions out until the transaction ends."""
    return (await db.scalars(_by_name(people=people, lock=lock), {"name": name})).one_or_none()


@cache
def _by_name(*, people: bool, lock: bool) -> Select[Project]:
    query = _with_people(select(Project).where(Project.name == bindparam("name")), people=people)
    return query.with_for_update(of=Project).execution_options(populate_existing=True) if lock else query


async def by_names(db: AsyncSession, names: Iterable[str]) -> Sequence[Project]:
    """Return the projects of those names that exist."""
    return (await db.scalars(select(Project).where(Project.name.in_(list(names))).order_by(Project.name))).all()


async def within(db: AsyncSession, reach: Reach, *, people: bool = False) -> Sequence[Project]:
    """Return the projects that somebody may reach, by name."""
    everything = true() if reach.everything else false()
    own = or_(everything, Project.domain == reach.domain if reach.domain else false(), Project.id.in_(reach.projects))
    query = _with_people(select(Project).where(own).order_by(Project.name), people=people)
    return (await db.scalars(query)).all()


async def every(db: AsyncSession) -> Sequence[Project]:
    """Return all projects by name."""
    return (await db.scalars(select(Project).order_by(Project.name))).all()


def is_ended(at: datetime) -> ColumnElement[bool]:
    """Return the condition that a project's period is over at a moment."""
    return Project.ends_at <= at


async def ended(db: AsyncSession, at: datetime) -> Sequence[Project]:
    """Return the projects whose period is over at a moment."""
    return (await db.scalars(select(Project).where(is_ended(at)).order_by(Project.name))).all()


async def keeping_to(db: AsyncSession, group: str, *, outside: str | None = None) -> Sequence[str]:
    """Return the names of the projects whose sessions keep to a resource group, those `outside` a domain alone."""
    query = select(Project.name).where(or_(Project.training_group == group, Project.interactive_group == group))
    query = query.where(Project.domain.is_distinct_from(outside)) if outside else query
    return (await db.scalars(query.order_by(Project.name))).all()


async def is_domain(db: AsyncSession, name: str) -> bool:
    """Return whether there is a domain of that name."""
    return await db.get(Domain, name) is not None


async def groups_for(db: AsyncSession, project: Project, names: Iterable[str]) -> dict[str, bool]:
    """Return which of some resource groups are the site's or of a project's domain.

    True are those that the project may use as they are: those of its domain, open ones, and those that list it. They
    stay as they are until the transaction ends.
    """
    wanted = ResourceGroup.name.in_(list(names))
    # first, and by itself: what is read afterwards is as whoever held one of them has left it
    await db.execute(select(ResourceGroup.id).where(wanted).order_by(ResourceGroup.name).with_for_update(read=True))
    own = ResourceGroup.domain == project.domain
    listed = ResourceGroup.id.in_(select(group_projects.c.group_id).where(group_projects.c.project_id == project.id))
    query = select(ResourceGroup.name, or_(func.coalesce(own, false()), ResourceGroup.open, listed))
    query = query.where(wanted, or_(ResourceGroup.domain.is_(None), own))
    return {name: bool(usable) for name, usable in await db.execute(query)}


async def limit_of_domain(db: AsyncSession, name: str) -> int | None:
    """Return what the projects of a domain hold together at most, in milli-GPU; None is no limit."""
    return await db.scalar(select(Domain.limit_milli).where(Domain.name == name))


async def quota_of_domain(db: AsyncSession, name: str) -> int | None:
    """Return what the quotas of a domain's projects may come to, in milli-GPU; None is no limit."""
    return await db.scalar(select(Domain.quota_milli).where(Domain.name == name))


async def quota_periods(
    db: AsyncSession, *, hard_only: bool, but: UUID | None = None, domain: str | None = None
) -> list[QuotaPeriod]:
    """Return the quotas of projects: all or only those with a hard cap, or of a domain, without one of them."""
    query = select(Project.quota_milli, Project.starts_at, Project.ends_at)
    if hard_only:
        query = query.where(Project.over_quota.is_(False))
    if but is not None:
        query = query.where(Project.id != but)
    if domain is not None:
        query = query.where(Project.domain == domain)
    return [QuotaPeriod(*row) for row in await db.execute(query)]


async def known_milli(db: AsyncSession) -> int | None:
    """Return the milli-GPU that the nodes have, lost ones too; None where no node is known yet."""
    nodes = await db.scalar(select(func.count()).select_from(Node))
    return int(await db.scalar(select(func.sum(Gpu.capacity_milli))) or 0) if nodes else None


def add(db: AsyncSession, project: Project) -> None:
    """Add a project to the transaction."""
    db.add(project)


async def delete(db: AsyncSession, project: Project) -> None:
    """Delete a project with the record of its ended sessions."""
    await db.delete(project)


def _with_people(query: Select[Project], *, people: bool) -> Select[Project]:
    return query.options(selectinload(Project.memberships)) if people else query
