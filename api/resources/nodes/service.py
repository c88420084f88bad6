"""Rules of nodes: they come to be by their first heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.resources.nodes import interfaces, repository
from api.resources.nodes.heartbeats import Contest, HeardHeartbeat, Heartbeats, Rival
from api.tables.nodes import Gpu, Node, NodeMode, NodeState
from common.errors import InputError, NotFoundError
from common.protocol import NodeInfo
from common.sentence import Sentence

note_alive = repository.note_alive
has_reported = repository.has_reported
heard = repository.heard
draining = repository.draining
replace_message = repository.replace_message
not_callable = repository.not_callable
lost = repository.lost
move = repository.move
forget_reports = repository.forget_reports
IS_LOST, IS_DRAINING, HAS_UNKNOWN = repository.IS_LOST, repository.IS_DRAINING, repository.HAS_UNKNOWN
CANNOT_BE_CALLED, CANNOT_CALL = repository.CANNOT_BE_CALLED, repository.CANNOT_CALL

DESCRIBED = tuple(NodeInfo.model_fields.keys() - {"name", "gpus", "hcas", "interfaces", "unready"})
"""What a node's row takes over from what its agent tells, as it is."""

WRONG_CLOCK = "its clock is "
API_CLOCK = "the API's clock is "
CONTESTED = {Rival.AGENT: "another agent reports as ", Rival.MACHINE: "another machine reports as "}


with_open = repository.with_open


async def every(db: AsyncSession) -> Sequence[Node]:
    """Return all nodes by name."""
    return await repository.every(db)


async def recall_machines(db: AsyncSession, heartbeats: Heartbeats) -> None:
    """Remember whose nodes are: the first agent to report after a start may be that of a copied disk."""
    heartbeats.recall({node.name: node.machine for node in await repository.every(db)}, now())


async def get(db: AsyncSession, name: str, *, lock: bool = False) -> Node:
    """Return one node; raises NotFoundError. `lock` is for who deletes it: nothing is placed on it any more."""
    node = await repository.by_name(db, name, lock=lock)
    if node is None:
        raise NotFoundError(
            Sentence("there is no node {name}", name=name), where="name", hint=Sentence("list the nodes")
        )
    return node


async def by_id(db: AsyncSession, node_id: UUID) -> Node | None:
    """Return a node by its id."""
    return await repository.by_id(db, node_id)


async def record(
    db: AsyncSession, reports: Sequence[HeardHeartbeat], known_since: Callable[[str], datetime]
) -> tuple[dict[str, Node], set[str]]:
    """Write what heartbeats say of their nodes; returns the nodes by name, and which of them are back.

    Those were lost until now, or had not reported to this database.

    What was heard before this process knew the database is none of its reports: more may run by now.
    """
    nodes, this = await repository.by_names(db, [report.heartbeat.name for report in reports])
    returned = {node.name for node in nodes.values() if node.state is NodeState.LOST}
    # the rows are locked in this order by whoever writes many
    await repository.note_heard(
        db, {nodes[name].id: each.received_at for each in reports if (name := each.heartbeat.name) in nodes}
    )
    for report in reports:
        name = report.heartbeat.name
        if name not in nodes:
            nodes[name] = Node(name=name, gpus=[], heard=1, last_seen=report.received_at, reported_to="")
            repository.add(db, nodes[name])
        _describe(nodes[name], report)
        if nodes[name].reported_to != this and report.received_at >= known_since(this):
            nodes[name].reported_to = this
            returned.add(name)
    await db.flush()
    return nodes, returned


async def mark_lost(db: AsyncSession, counts: Mapping[UUID, int]) -> Sequence[Node]:
    """Mark the nodes as lost of which nothing was heard since their heartbeats were counted; return them."""
    silent = await repository.silent(db, counts)
    for node in silent:
        node.state = NodeState.LOST
        node.message = f"its agent has not reported since {node.last_seen:%Y-%m-%d %H:%M:%S} UTC"
    await db.flush()
    return silent


async def set_mode(db: AsyncSession, name: str, mode: NodeMode, drain_until: datetime | None) -> Node:
    """Say what an administrator wants of a node; a drain ends at `drain_until`. Raises NotFoundError."""
    node = await get(db, name)
    node.mode, node.drain_until = mode, drain_until
    await db.flush()
    return node


async def choose_interface(db: AsyncSession, name: str, interface: str, hidden: Collection[str]) -> Node:
    """Let what sessions say between nodes go by an interface of a node, or (empty) by that which has its address.

    Raises NotFoundError, and InputError for what is no interface with an address there, or with one of another node,
    which is named unless that is `hidden`.
    """
    node = await get(db, name)
    if interface:
        address = interfaces.check(node, interface)
        if other := await repository.other_at(db, node.id, address):
            # such as that of a bridge to virtual machines, which each machine has
            raise InputError(
                Sentence(
                    "{name}: {interface} has {address}, as {other} has",
                    name=name,
                    interface=interface,
                    address=address,
                    other=Sentence("another node") if other in hidden else other,
                ),
                where="interface",
                hint=Sentence("choose one whose address no other node has")
                if other in hidden
                else Sentence(
                    "choose one whose address no other node has, or delete {other} where that is gone", other=other
                ),
            )
    node.interface = interface
    await db.flush()
    return node


async def finish_drain(db: AsyncSession, name: str) -> None:
    """Leave a drained node in maintenance, unless it is wanted otherwise by now."""
    node = await get(db, name)
    if node.mode is NodeMode.DRAINING:
        node.mode, node.drain_until = NodeMode.MAINTENANCE, None
    await db.flush()


async def remove(db: AsyncSession, node: Node) -> None:
    """Delete a node; nothing of a live session may be on it any more."""
    await repository.remove(db, node.id)


def _describe(node: Node, report: HeardHeartbeat) -> None:
    heartbeat, info = report.heartbeat, report.heartbeat.node_info
    node.address, node.port = heartbeat.address, heartbeat.port
    if node.state is NodeState.LOST:
        node.unknown_containers = 0
    node.clock_offset_s, node.protocol, node.machine = report.clock_skew_s, report.protocol, report.machine
    node.message = _message(node, info.unready, api_clock=report.api_clock)
    node.state = NodeState.UNREADY if info.unready else NodeState.READY
    _note_contest(node, report.contest)
    for field in DESCRIBED:
        setattr(node, field, getattr(info, field))
    node.hcas = [hca.model_dump(mode="json") for hca in info.hcas]
    node.interfaces = [each.model_dump(mode="json") for each in info.interfaces]
    known = {gpu.uuid: gpu for gpu in node.gpus}
    for device in info.gpus:
        gpu = known.pop(device.uuid, None)
        if gpu is None:
            node.gpus.append(Gpu(**device.model_dump()))
            continue
        for field, value in device.model_dump().items():
            setattr(gpu, field, value)
    for gpu in known.values():
        node.gpus.remove(gpu)


def _message(node: Node, unready: str, *, api_clock: bool) -> str:
    """Return what is wrong with a node, before it comes to its state; what a ready one was found to lack stays."""
    clock, skew_s = "", node.clock_offset_s
    if skew_s and api_clock:
        way = "behind" if skew_s > 0 else "ahead of"
        clock = (
            f"{API_CLOCK}{abs(skew_s)} s {way} those of all nodes: they take nothing new; look at the master's chrony"
        )
    elif skew_s:
        way = "ahead of" if skew_s > 0 else "behind"
        clock = f"{WRONG_CLOCK}{abs(skew_s)} s {way} the API's: it takes nothing new; look at its chrony service"
    if unready:
        return f"{unready}; {clock}" if clock else unready
    is_kept = node.state is NodeState.READY and node.message and not node.message.startswith((WRONG_CLOCK, API_CLOCK))
    return node.message if is_kept else clock


def _note_contest(node: Node, contest: Contest | None) -> None:
    """Say on a node who else reports as it, or that nobody does any more; what else is wrong comes first."""
    if node.message and not node.message.startswith(tuple(CONTESTED.values())):
        return
    said = f"{CONTESTED[contest.rival]}{node.name}" if contest else ""
    if contest and contest.rival is Rival.MACHINE:
        where = f" from {contest.address}" if contest.address else ""
        said += f"{where} and is refused: its disk may be a copy of this one's; stop it"
    elif contest:
        said += ": one of them is not this machine's, or was started twice; stop it"
    node.message = said
