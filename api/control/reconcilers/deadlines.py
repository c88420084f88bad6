"""Deadlines: how long a session may be on its way, and what happens then; the one table of it.

PENDING waits for the scheduler, which always says why. RUNNING ends by its command, its time limit (`limits`), its node
(`losses`, `drains`) or a user. TERMINATING goes on until every container is known to be gone (`operate`): a node that
is ready is asked again and again, a lost one is given up after `node_gone_s`, at once where the session only goes back
into the queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.control.reconcilers.change import SessionUpdate
from api.control.reconcilers.failures import Failures
from api.resources.sessions import service as sessions
from api.settings import Settings
from api.tables.sessions import Session, State
from common.protocol import ContainerStatus
from common.sentence import Sentence


class Phase(StrEnum):
    """What a session that has its places is waiting for."""

    LAUNCH = "an agent that takes it"
    PULL = "its image"
    START = "its containers"


@dataclass(frozen=True)
class Deadline:
    """After `limit_s` without a step forward the session is terminated, and comes to its `final_state`."""

    limit_s: float
    final_state: State
    reason: str


def table(settings: Settings) -> Mapping[Phase, Deadline]:
    """Return what the administrator has set."""
    launch, pull, start = settings.launch_limit_s, settings.pull_limit_s, settings.start_limit_s
    not_taken = Sentence("no agent took it within {seconds} s, so it waits again", seconds=f"{launch:g}")
    no_image = Sentence("its image was not there after {seconds} s", seconds=f"{pull:g}")
    not_begun = Sentence("its container did not start within {seconds} s", seconds=f"{start:g}")
    return {
        Phase.LAUNCH: Deadline(launch, State.PENDING, not_taken),
        Phase.PULL: Deadline(pull, State.FAILED, no_image),
        Phase.START: Deadline(start, State.FAILED, not_begun),
    }


def phase_of(session: Session) -> Phase:
    """Return what a session in SCHEDULED or PREPARING waits for."""
    statuses = [container.status for container in session.containers]
    if None in statuses:
        return Phase.LAUNCH
    return Phase.PULL if ContainerStatus.PULLING in statuses else Phase.START


async def due(
    db: AsyncSession, settings: Settings, waited_s: Mapping[UUID, float], failures: Failures
) -> Sequence[SessionUpdate]:
    """Return what ends the sessions whose time is over, of those that have waited for so long."""
    deadlines = table(settings)
    found = await sessions.by_ids(db, [id_ for id_, seconds in waited_s.items() if seconds >= shortest_s(settings)])
    judge = partial(_after, deadlines=deadlines, waited_s=waited_s)
    return failures.judge(Sentence("to look at its deadline"), list(found.values()), judge)


def shortest_s(settings: Settings) -> float:
    """Return for how long nothing that starts is late."""
    return min(deadline.limit_s for deadline in table(settings).values())


def _after(
    session: Session, deadlines: Mapping[Phase, Deadline], waited_s: Mapping[UUID, float]
) -> SessionUpdate | None:
    deadline = deadlines[phase_of(session)]
    if waited_s[session.id] < deadline.limit_s:
        return None
    reason = deadline.reason
    if deadline.final_state is State.PENDING and session.reason:
        reason = Sentence("{what} ({before})", what=reason, before=session.why)
    return SessionUpdate(session, {"state": State.TERMINATING, "final_state": deadline.final_state, "reason": reason})
