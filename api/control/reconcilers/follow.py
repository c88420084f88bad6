"""Changes of a session when its containers are seen in a state. Pure: it reads rows and answers with values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from signal import Signals
from typing import Any

from api.control.reconcilers.refusals import forgotten
from api.resources.sessions import time_limits
from api.tables.sessions import Kind, Session, State
from common.lease_protocol import LEASE_ENDED
from common.nccl import NcclEvidence
from common.protocol import ENGINE_RESTARTED, MACHINE_RESTARTED, NODE_RESTARTED, ContainerState, ContainerStatus
from common.sentence import Sentence

WATCHED = (State.SCHEDULED, State.PREPARING, State.RUNNING)
BEGUN = (ContainerStatus.RUNNING, ContainerStatus.EXITED)
UNDER_WAY = (ContainerStatus.PULLING, ContainerStatus.CREATING)

ENDED_BY_ITSELF = {
    Kind.INTERACTIVE: Sentence(
        "its command has ended; one that stays keeps it, such as `--command sleep --args infinity`"
    ),
    Kind.SERVICE: Sentence("its command has ended; a service needs one that stays"),
}
"""Why a session ended whose command ended well, where that is not what it is for."""
WITHDRAWN = "withdrawn"
"""Why a session ended whose lease ended before it."""
INTERRUPTIONS = {
    NODE_RESTARTED: "node-restarted",
    MACHINE_RESTARTED: "node-restarted",
    ENGINE_RESTARTED: "engine-restarted",
    LEASE_ENDED: WITHDRAWN,
}
"""Causes of ends, by what agents say: all that ran on a node ended with it, or its place was withdrawn."""
LASTING = frozenset(INTERRUPTIONS.values())
"""Causes that stay when the session has ended."""
MAX_CHARACTERS = 2000
"""So much is kept of what an agent says is wrong: it may quote a whole command line, and every list shows it."""
BY_SIGNAL = 128
"""An exit code beyond it is that of a program which a signal has ended."""
MEASURED_TO_S = 1.0
"""No nearer is it known how far an agent's clock is ahead: its heartbeats take a while on their way."""

Noted = dict[int, dict[str, Any]]


def after(session: Session, seen: Mapping[int, ContainerState], at: datetime) -> tuple[dict[str, Any], Noted]:
    """Return what changes of a session and of its containers when some of these are seen in a state, by rank.

    They start and end together: the first that fails ends the session, the last that ends well does.
    """
    if session.state not in WATCHED:
        return {}, {}
    noted = {rank: _news(session, rank, container) for rank, container in seen.items()}
    statuses = {container.rank: container.status for container in session.containers if not container.leaving}
    statuses |= {rank: values["status"] for rank, values in noted.items() if "status" in values}
    for rank, container in sorted(seen.items()):
        if is_new(session, rank) and container.status is ContainerStatus.FAILED:
            # one more that does not start leaves the others alone
            noted[rank] = {**noted[rank], "leaving": True}
        elif container.status is ContainerStatus.FAILED or container.exit_code:
            return _failure(session, rank, container, at), noted
    statuses = {rank: status for rank, status in statuses.items() if status in BEGUN or not is_new(session, rank)}
    if statuses and all(status is ContainerStatus.EXITED for status in statuses.values()):
        started = session.started_at or _started(session, seen, at)
        ended = {"state": State.TERMINATING, "final_state": State.TERMINATED, "cause": "", "exit_code": 0}
        return {**ended, "reason": ENDED_BY_ITSELF.get(session.kind, ""), "started_at": started}, noted
    # A container starts once: what would set a running session back was written before it ran, and comes late.
    if session.state is State.RUNNING:
        return _rest(session, noted, at), noted
    if statuses and all(status in BEGUN for status in statuses.values()):
        return beginning(session, _started(session, seen, at)), noted
    return _progress(session, statuses, at), noted


def _rest(session: Session, noted: Noted, at: datetime) -> dict[str, Any]:
    """Return from when on an elastic session keeps its containers for a while, where one of them has come or gone.

    With that the session itself has changed: the scheduler reads none again that has not.
    """
    has_changed = any({"status", "leaving"} & news.keys() for news in noted.values())
    return {"replicas_at": at} if session.max_replicas and has_changed else {}


def is_new(session: Session, rank: int) -> bool:
    """Return whether a container was added to a session that runs, and never ran itself."""
    if session.state is not State.RUNNING or rank < (session.min_replicas or session.replicas):
        return False
    return next(item for item in session.containers if item.rank == rank).started_at is None


def beginning(session: Session, started: datetime) -> dict[str, Any]:
    """Return what changes when all containers run: the time of one with a limit begins to count."""
    started = session.started_at or started
    values: dict[str, Any] = {"state": State.RUNNING, "reason": "", "cause": "", "started_at": started}
    values |= forgotten(session)
    limit_s = time_limits.limit_s(session.limit_s, session.kind, session.project)
    if limit_s and session.expires_at is None:
        values["expires_at"] = started + timedelta(seconds=limit_s)
    return values


def _news(session: Session, rank: int, container: ContainerState) -> dict[str, Any]:
    """Return what is new of one container; what would set it back was written before, and comes late."""
    known = next(item for item in session.containers if item.rank == rank)
    if known.status is ContainerStatus.EXITED:
        return {}
    if known.status is ContainerStatus.RUNNING and container.status in UNDER_WAY:
        return {}
    seen = {
        "status": container.status,
        "error": container.error[:MAX_CHARACTERS],
        "exit_code": container.exit_code,
        # as it was first told: what we make of an agent's clock varies
        "started_at": known.started_at or container.started_at,
        "ports": {str(port): at for port, at in container.ports.items()},
        "enforcement": container.enforcement,
        "warning": container.warning[:MAX_CHARACTERS],
        "nccl": _evidence(known.nccl, container.nccl),
    }
    return {name: value for name, value in seen.items() if getattr(known, name) != value}


def _evidence(known: dict[str, Any], told: NcclEvidence | None) -> dict[str, Any]:
    """Return what is known of the ways of NCCL: an agent that was restarted may not see again what it saw."""
    if told is None:
        return known
    return NcclEvidence.model_validate(known).with_later(told).model_dump()


def by_our_clock(container: ContainerState, offset_s: float) -> ContainerState:
    """Return a container with its times as our clock had them, by how far the agent's was ahead."""
    if abs(offset_s) < MEASURED_TO_S:
        return container
    off = timedelta(seconds=offset_s)
    times = {name: moment for name in ("started_at", "finished_at") if (moment := getattr(container, name))}
    return container.model_copy(update={name: moment - off for name, moment in times.items()})


def within_its_time(session: Session, moment: datetime, at: datetime) -> datetime:
    """Return a moment of a session that an agent told: no earlier than the session got its places, and not to come.

    Time limits and accounting begin there: whatever an agent's clock says, ours counts.
    """
    return min(max(moment, session.scheduled_at or session.created_at), at)


def _started(session: Session, seen: Mapping[int, ContainerState], at: datetime) -> datetime:
    told = max((container.started_at for container in seen.values() if container.started_at), default=at)
    return within_its_time(session, told, at)


def _progress(session: Session, statuses: Mapping[int, ContainerStatus | None], at: datetime) -> dict[str, Any]:
    pulls, count = ContainerStatus.PULLING in statuses.values(), len(statuses)
    reason = Sentence("pulls the image") if pulls else Sentence("starts the container")
    if count > 1:
        begun = sum(status in BEGUN for status in statuses.values())
        what = reason if pulls else Sentence("starts the containers")
        reason = Sentence("{what}; {begun} of {count} run", what=what, begun=begun, count=count)
    if session.state is State.PREPARING and session.reason == reason:
        return {}
    # every step forward is given its own time
    return {"state": State.PREPARING, "reason": reason, "since": at}


def starts_again(session: Session) -> bool:
    """Return whether a session that loses its node goes back into the queue rather than is kept."""
    return session.kind is Kind.TRAINING or session.state is not State.RUNNING


def withdrawn(why: str, *, again: bool) -> str:
    """Return the reason of a session whose launcher has taken its place back, and which may start `again`."""
    reason = Sentence("Slurm took its place back: {why}", why=why)
    return Sentence("{why}; it starts again", why=reason) if again else reason


def gone(session: Session, node: str, *, while_away: bool) -> dict[str, Any]:
    """Return what changes when a container of a running session is not there any more, and nobody asked for that.

    What went while the agent was away was taken away, as far as anybody knows: a training starts again.
    """
    again = while_away and starts_again(session)
    reason = Sentence("its container is gone from {node}", node=node)
    if while_away:
        reason = Sentence("its container went from {node} while the agent was away", node=node)
    if again:
        reason = Sentence("{why}; it starts again", why=reason)
    final_state = State.PENDING if again else State.FAILED
    return {"state": State.TERMINATING, "final_state": final_state, "reason": reason, "cause": ""}


def _loss(session: Session, rank: int, container: ContainerState) -> dict[str, Any]:
    reason = Sentence("{why}; it starts again", why=_of_which(session, rank, container.error[:MAX_CHARACTERS]))
    return {"state": State.TERMINATING, "final_state": State.PENDING, "reason": reason, "cause": _cause(container)}


def _cause(container: ContainerState) -> str:
    return next((cause for said, cause in INTERRUPTIONS.items() if container.error.startswith(said)), "")


def _of_which(session: Session, rank: int, what: str) -> str:
    """Return what happened to a container, with which it was where there are several."""
    if session.max_replicas:
        return Sentence("container {rank}: {what}", rank=rank, what=what)
    if session.replicas > 1:
        return Sentence("container {rank} of {count}: {what}", rank=rank, count=session.replicas, what=what)
    return what


def _failure(session: Session, rank: int, container: ContainerState, at: datetime) -> dict[str, Any]:
    if container.lost and starts_again(session):
        return _loss(session, rank, container)
    started = within_its_time(session, container.started_at, at) if container.started_at else None
    exited = container.status is ContainerStatus.EXITED
    reason = _end(container.exit_code or 0) if exited else Sentence("its container did not start")
    return {
        "state": State.TERMINATING,
        "final_state": State.FAILED,
        "reason": _of_which(session, rank, container.error[:MAX_CHARACTERS] or reason),
        "cause": _cause(container) if container.lost else "",
        "exit_code": container.exit_code,
        "started_at": session.started_at or started,
    }


def _end(code: int) -> str:
    """Return how a command ended: with a code of its own, or by a signal, as shells and engines count these."""
    try:
        number = Signals(code - BY_SIGNAL)
    except ValueError:
        return Sentence("its command ended with exit code {code}", code=str(code))
    return Sentence("it was killed (signal {number}, {name})", number=str(number.value), name=number.name)
