"""Reasons to wait that the decision knows nothing of, and how people are told of the sessions of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from api.control.reconcilers.failures import TRIES
from api.resources.projects import service as projects
from api.resources.sessions.scheduling import Asked, PendingReasonUpdate, Placed
from api.scheduler.networks import all_taken
from api.scheduler.snapshot import Cause, Decision, Reclaim
from api.scheduler.titles import OF_OTHERS
from api.tables.projects import Access, Project
from common.sentence import Moment, Sentence

NOT_ACTIVE = "not-active"
"""Why a session waits whose project is outside its period; the decision knows nothing of it."""
FAILING = "failing"
"""Why a session waits at which decisions fail; they are made without it."""


def told(row: Asked, project: str, reader: str) -> str:
    """Return how people of a project, the reader, are told of a session of a project."""
    if project != reader:
        return OF_OTHERS
    if row.access is Access.PRIVATE:
        return Sentence("a private session of {project}", project=project)
    return f"{project}/{row.name}"


def stopped(reclaim: Reclaim, whom: str) -> str:
    """Return why a session is stopped, by how its people are told of whom that is for."""
    if reclaim.moved:
        return Sentence("moved for {whom}: {why}", whom=whom, why=reclaim.reason)
    return Sentence("reclaimed for {whom}: {why}", whom=whom, why=reclaim.reason)


def outside(rows: Iterable[Asked], known: Mapping[UUID, Project], moment: datetime) -> Iterable[PendingReasonUpdate]:
    """Yield the new pending reasons of those whose project is outside its period."""
    for row in rows:
        project = known[row.project_id]
        if projects.is_active(project, moment):
            continue
        ended = project.ends_at if project.ends_at and project.ends_at <= moment else None
        reason = _ended(project.name, ended) if ended else _not_begun(project.name, project.starts_at)
        if (row.reason, row.cause, row.reserved_on) != (reason, NOT_ACTIVE, []):
            yield PendingReasonUpdate(row.id, row.revision, reason, NOT_ACTIVE, 0)


def without_network(
    rows: Iterable[Asked], short: Mapping[UUID, Placed], capacity: int
) -> Iterable[PendingReasonUpdate]:
    """Yield the new pending reasons of those who have places, and whose network somebody else got meanwhile."""
    reason = all_taken(capacity)
    for row in rows:
        if row.id in short and (row.reason, row.cause, row.reserved_on) != (reason, Cause.NO_NETWORK, []):
            yield PendingReasonUpdate(row.id, row.revision, reason, Cause.NO_NETWORK, 0)


def unplanned(rows: Iterable[Asked], failures: Mapping[str, int]) -> Iterable[PendingReasonUpdate]:
    """Yield the new pending reasons of those that are left out of decisions, as these failed at them so often.

    0: at others that ask for the same.
    """
    for row in rows:
        count = failures.get(str(row.id))
        if count is None:
            continue
        reason = _failing(count)
        if (row.reason, row.cause) != (reason, FAILING):
            yield PendingReasonUpdate(row.id, row.revision, reason, FAILING, 0)


def decided(queue: Sequence[Asked], decision: Decision) -> Iterable[PendingReasonUpdate]:
    """Yield the new pending reasons of a decision, with where places are kept."""
    for row in queue:
        pending, reserved_on = decision.pending_reasons.get(str(row.id)), decision.reserved_on(str(row.id))
        if pending is None:
            continue
        told = pending.reason, pending.cause, pending.position, reserved_on
        if told != (row.reason, row.cause, row.position, row.reserved_on):
            cause, position = str(pending.cause), pending.position
            yield PendingReasonUpdate(row.id, row.revision, pending.reason, cause, position, reserved_on)


def _failing(count: int) -> str:
    if not count:
        return Sentence(
            "the API failed to find a place for others that ask for the same; it tries again, and the rest is served"
        )
    return Sentence(
        "the API failed to find it a place, {count} of {most} times; it tries again, and all others are served",
        count=count,
        most=TRIES,
    )


def _ended(project: str, at: datetime) -> str:
    return Sentence(
        "the period of {project} ended at {at}; an administrator may change that", project=project, at=Moment.at(at)
    )


def _not_begun(project: str, at: datetime) -> str:
    return Sentence(
        "the period of {project} begins at {at}; an administrator may change that", project=project, at=Moment.at(at)
    )
