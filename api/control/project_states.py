"""Projects as a cycle sees them, and the end and the containers of their sessions: rows as the decision knows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.domains import service as domains
from api.resources.projects import service as projects
from api.resources.sessions import time_limits
from api.resources.sessions.elastic import REST, Members
from api.resources.sessions.scheduling import Asked
from api.scheduler.snapshot import Bounds, DomainState, ProjectState, Running
from api.tables.projects import Expiry, Project
from api.tables.sessions import State

SECOND = 1_000_000


def micros(moment: datetime) -> int:
    """Return a moment as whole microseconds."""
    return round(moment.timestamp() * SECOND)


def told_apart(project: Project, moment: datetime, *, aged: bool = False) -> tuple[object, ...]:
    """Return what of a project a decision depends on."""
    state, is_active = project_state(project, moment, aged=aged), projects.is_active(project, moment)
    return state, is_active, *rules_of(project)


async def sharing(db: AsyncSession, known: Iterable[Project]) -> tuple[DomainState, ...]:
    """Return the domains whose projects share inside of them; where no project has a domain nothing is read."""
    found = await domains.that_share(db) if any(project.domain for project in known) else ()
    return tuple(
        DomainState(each.name, each.quota_milli or 0, each.over_quota_weight, each.limit_milli) for each in found
    )


def project_state(project: Project, moment: datetime, *, aged: bool = False) -> ProjectState:
    """Return a project as it is now: outside its period nothing is guaranteed to it.

    What it had lately is told where that counts (`aged`).
    """
    is_active = projects.is_active(project, moment)
    return ProjectState(
        name=project.name,
        quota_milli=projects.quota_at(project, moment),
        over_quota=project.over_quota,
        weight=project.over_quota_weight,
        min_runtime_s=project.min_runtime_s,
        limit_milli=project.limit_milli,
        cpu=_bounds(project.cpu_quota_milli, project.cpu_limit_milli, is_active=is_active),
        memory=_bounds(project.memory_quota_mib, project.memory_limit_mib, is_active=is_active),
        had_milli=round(project.had_milli) if aged else 0,
        domain=project.domain or "",
    )


def _bounds(quota: int | None, limit: int | None, *, is_active: bool) -> Bounds | None:
    return None if quota is None else Bounds(quota if is_active else 0, limit)


def ends_at_latest(row: Asked, project: Project) -> int:
    """Return when a session is stopped at the latest, by its time limit or its project's period; 0 if never.

    The time of one that is still on its way to run begins when it does: until then it is told as if it did already.
    """
    period = project.ends_at if project.on_expiry is Expiry.STOP else None
    limit = timedelta(seconds=time_limits.limit_s(row.limit_s, row.kind, project))
    expires_at = row.expires_at or (row.scheduled_at + limit if limit and row.scheduled_at else None)
    return min((micros(moment) for moment in (expires_at, period) if moment), default=0)


def with_members(running: Running, row: Asked, members: Members | None) -> Running:
    """Return an elastic session with what is so of its containers; it gets more once all of them run for a while."""
    # one that has changed between both looks is read again
    if members is None or len(members.ranks) != len(running.placements):
        return running
    may_grow = row.state is State.RUNNING and members.all_run and not members.leaving and row.reach
    changed_at = row.replicas_at + REST if row.replicas_at else row.started_at
    grows_at = micros(changed_at) if may_grow and changed_at else 0
    return replace(
        running, ranks=members.ranks, leaving=members.leaving, grows_at=grows_at, reach=tuple(sorted(row.reach))
    )


def rules_of(project: Project) -> tuple[object, ...]:
    """Return what of a project holds for its sessions: what ends them, and the groups that they keep to."""
    ends = project.ends_at, project.on_expiry, project.interactive_limit_s
    return *ends, project.training_group, project.interactive_group
