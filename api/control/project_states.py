"""Projects as a cycle sees them, and the end and the containers of their sessions: rows as the decision knows them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from api.resources.projects import service as projects
from api.resources.projects.states import project_state
from api.resources.sessions import time_limits
from api.resources.sessions.elastic import REST, Members
from api.resources.sessions.scheduling import Asked
from api.scheduler.snapshot import Running
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
