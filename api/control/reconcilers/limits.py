"""The ends that the clock brings: time limits of interactive sessions, and periods of projects.

What waits in a project whose period is over goes on waiting; the scheduler leaves it alone and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.control.reconcilers.change import SessionUpdate
from api.control.reconcilers.failures import Failures
from api.control.reconcilers.follow import WATCHED
from api.resources.projects import service as projects
from api.resources.sessions import lifecycle
from api.resources.sessions import service as sessions
from api.settings import Settings
from api.tables.projects import Expiry, Project
from api.tables.sessions import Session, State
from common.sentence import Moment, Sentence

TIME_LIMIT = "time-limit"
PERIOD = "period"


async def due(db: AsyncSession, settings: Settings, at: datetime, failures: Failures) -> Sequence[SessionUpdate]:
    """Return the warnings and the ends that are due."""
    warn_before = timedelta(seconds=settings.warn_before_s)
    timed = await lifecycle.timed(db, until(settings, at))
    updates = failures.judge(
        Sentence("to look at its time limit"), timed, partial(_after_limit, at=at, warn_before=warn_before)
    )
    stopped = {project.id: project for project in await projects.expired(db, at) if project.on_expiry is Expiry.STOP}
    if not stopped:
        return updates
    live = await lifecycle.of_projects(db, stopped, WATCHED)
    return updates + failures.judge(
        Sentence("to look at its project's period"), live, partial(_after_period, stopped=stopped)
    )


def until(settings: Settings, at: datetime) -> datetime:
    """Return until when a session ends that is to be warned, or stopped, now."""
    return at + timedelta(seconds=settings.warn_before_s)


def _after_limit(session: Session, at: datetime, warn_before: timedelta) -> SessionUpdate | None:
    expires_at = session.expires_at
    if expires_at is None:
        return None
    if expires_at <= at:
        reason = Sentence("its time limit was reached at {at}", at=Moment.at(expires_at))
        return SessionUpdate(session, _stop(TIME_LIMIT, reason))
    if session.warned_at is None and expires_at <= at + warn_before:
        return SessionUpdate(session, {"warned_at": at, "reason": _warning(session, expires_at), "cause": TIME_LIMIT})
    if session.warned_at is not None and expires_at > at + warn_before:
        cleared = {"reason": "", "cause": ""} if session.cause == TIME_LIMIT else {}
        return SessionUpdate(session, {"warned_at": None, **cleared})
    return None


def _warning(session: Session, expires_at: datetime) -> Sentence:
    """Return what is told before a time limit ends a session, by whether its owner may put that off."""
    at = Moment.at(expires_at)
    if sessions.owner_adds_s(session):
        return Sentence("its time limit ends it at {at}; save your work, or extend it", at=at)
    return Sentence(
        "its time limit ends it at {at}; save your work, or ask a manager of {project} to extend it",
        at=at,
        project=session.project.name,
    )


def _after_period(session: Session, stopped: Mapping[UUID, Project]) -> SessionUpdate:
    project = stopped[session.project_id]
    ended = Moment.at(project.ends_at or session.since)
    reason = Sentence("the period of {project} ended at {at}", project=project.name, at=ended)
    return SessionUpdate(session, _stop(PERIOD, reason))


def _stop(cause: str, reason: str) -> dict[str, Any]:
    return {"state": State.TERMINATING, "final_state": State.TERMINATED, "reason": reason, "cause": cause}
