"""Orphaned containers: a node reports them, and no session has them there.

One of a session that the database knows is removed: the session has ended, moved, or started again. One of a session
that the database does not know is unknown. A database that was restored from a backup, or is not the right one, knows
less than the machines, and must not stop people's work: unknown containers are left alone and reported, and their node
takes nothing new, until an administrator removes them or they have been there for long. One that has ended holds
nothing: it is kept as long, and hinders nothing. What the others hold of GPUs is given to nobody until they are gone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.control.reconcilers import losses
from api.engine.base import AgentAddress
from api.resources.nodes.heartbeats import HeardHeartbeat
from api.resources.sessions import service as sessions
from api.resources.sessions.relay import agent_of
from api.tables.nodes import Node
from api.tables.sessions import ENDED, HOLDING, Session, State
from common.gpu.share import MILLI
from common.protocol import ContainerState

log = structlog.get_logger()

SHOWN = 3
"""So many unknown containers are named in a node's message."""


@dataclass(frozen=True)
class Orphan:
    """A container that runs somewhere and that no session wants."""

    target: AgentAddress
    container_id: str
    session_id: str


@dataclass
class Sorted:
    """What some nodes run beside what they should; `left_running` may be given back to their sessions, by rank."""

    orphans: list[Orphan] = field(default_factory=list)
    left_running: list[losses.LeftRunning] = field(default_factory=list)


class Orphans:
    """Remembers since when each unknown container is there; `keep_s` is for how long they are left alone."""

    def __init__(self, keep_s: float) -> None:
        """Start with none."""
        self._keep_s = keep_s
        self._since: dict[tuple[str, str], float] = {}

    async def sort(
        self,
        db: AsyncSession,
        known: Mapping[str, Node],
        reports: Sequence[HeardHeartbeat],
        returned: Collection[str],
        watched: Iterable[Session],
    ) -> Sorted:
        """Sort out what is not where it should be; `returned` are the nodes that were lost until now.

        `watched` are sessions that have been read already.
        """
        by_id = {session.id: session for session in watched}
        named = {id_ for report in reports for item in report.heartbeat.containers if (id_ := _uuid(item.session_id))}
        if others := named - by_id.keys():
            by_id |= await sessions.by_ids(db, others)
        result = Sorted()
        for report in reports:
            node = known[report.heartbeat.name]
            self._sort_node(node, report.heartbeat.containers, by_id, result, back=node.name in returned)
        return result

    def _sort_node(
        self,
        node: Node,
        containers: Sequence[ContainerState],
        by_id: Mapping[UUID, Session],
        result: Sorted,
        *,
        back: bool,
    ) -> None:
        kept: set[str] = set()
        if back:
            waiting = {item.session_id: by_id.get(_uuid(item.session_id) or UUID(int=0)) for item in containers}
            given = _given(node, by_id.values())
            for session in waiting.values():
                left = losses.left_running(session, node, containers) if session and _waits(session) else None
                if left and _fits(left, given):
                    result.left_running.append(left)
                    kept |= {item.id for item in left.containers.values()}
        unknown, elsewhere = [], []
        for container in containers:
            id_ = _uuid(container.session_id)
            session = by_id.get(id_) if id_ else None
            if session is None:
                unknown.append(container)
            elif container.id not in kept and not _belongs(session, container.id, node):
                elsewhere.append(container)
                result.orphans.append(Orphan(agent_of(node), container.id, container.session_id))
        _count_gpus(node, [*unknown, *elsewhere])
        result.orphans += self._note_unknown(node, unknown)

    def _note_unknown(self, node: Node, unknown: Sequence[ContainerState]) -> list[Orphan]:
        """Say on the node what unknown containers it runs; returns those that have been left alone for long enough."""
        moment = time.monotonic()
        known = {(node.name, container.id) for container in unknown}
        self._since = {key: since for key, since in self._since.items() if key[0] != node.name or key in known}
        for key in known - self._since.keys():
            log.warning("a container of a session that the database does not know", node=key[0], container=key[1])
            self._since[key] = moment
        if (ids := sorted(item.id for item in unknown)) != node.unknown_ids:
            node.unknown_ids = ids
        over = [item for item in unknown if self._since[node.name, item.id] + self._keep_s <= moment]
        _say(node, [item for item in unknown if item not in over and not item.status.is_final])
        return [Orphan(agent_of(node), item.id, item.session_id) for item in over]


def _count_gpus(node: Node, orphaned: Sequence[ContainerState]) -> None:
    """Note what orphaned containers hold of the node's GPUs; one that was shared twice is no more than taken."""
    held: Counter[str] = Counter()
    for container in orphaned:
        if not container.status.is_final:
            held.update({share.uuid: share.milli for share in container.gpus})
    milli = {uuid: min(taken, MILLI) for uuid, taken in sorted(held.items())}
    if milli != node.orphaned_milli:
        node.orphaned_milli = milli


def _say(node: Node, unknown: Sequence[ContainerState]) -> None:
    if len(unknown) == node.unknown_containers:
        return
    node.unknown_containers = len(unknown)
    more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
    shown = (f"{item.id} ({item.warning})" if item.warning else item.id for item in unknown[:SHOWN])
    which = ", ".join(shown) + more
    node.message = f"it runs containers of sessions that the database does not know: {which}" if unknown else ""


def _waits(session: Session) -> bool:
    return session.state is State.PENDING


def _given(node: Node, known: Iterable[Session]) -> Counter[str]:
    """Return what sessions were given of the node's GPUs, in milli-GPU."""
    given: Counter[str] = Counter()
    holding = [session for session in known if session.state in HOLDING]
    for container in (each for session in holding for each in session.containers if each.node_id == node.id):
        given.update({share.uuid: share.milli for share in container.gpu_shares})
    return given


def _fits(left: losses.LeftRunning, given: Counter[str]) -> bool:
    """Return whether what still runs was given to nobody else, and count it as given: a restore may have done that."""
    held: Counter[str] = Counter()
    for container in left.containers.values():
        held.update({share.uuid: share.milli for share in container.gpus})
    fits = all(given[uuid] + milli <= MILLI for uuid, milli in held.items())
    if fits:
        given.update(held)
    return fits


def _belongs(session: Session, container_id: str, node: Node) -> bool:
    if session.state in ENDED or session.state is State.PENDING:
        return False
    return container_id in {session.container_id(item.rank) for item in session.containers if item.node_id == node.id}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
