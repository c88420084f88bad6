"""Numbers of the networks between the containers of sessions: given with the places, free when containers are gone.

A number is a subnet: the range of the site is divided into subnets of `PREFIX` bits, and the first bits of a subnet's
address, so many, are its number. So a number tells its subnet whatever the range is now, and no two subnets of private
ranges have one number of a VXLAN.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from uuid import UUID

from sqlalchemy import ColumnElement, cast, delete, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import NETWORKS_LOCK, among, exclusively
from api.resources.nodes import interfaces
from api.scheduler.snapshot import Networks
from api.tables.nodes import Node
from api.tables.sessions import ENDED, Container, GangNetwork, GangNode, Session, State
from common.gang_networks import PREFIX, capacity

_SHIFT = 32 - PREFIX
_FIRST_HOST = 2
_VXLAN_BITS = 0xFFFFFF
_HAS_CHOICE = Node.interface != ""
_CHOSEN_ADDRESS = func.jsonb_path_query_first(
    Node.interfaces,
    cast("$[*] ? (@.name == $name).addresses[0]", JSONPATH),
    func.jsonb_build_object("name", Node.interface),
    type_=JSONB,
)
"""What `interfaces.address_of` says, as an expression."""


@dataclass(frozen=True, slots=True)
class Left:
    """An attempt of a session that is over since a moment, and of which a node may still have containers.

    Where the session itself is deleted, nobody knows since when.
    """

    number: int
    node_id: UUID
    session_id: UUID
    attempt: int
    since: datetime | None

    def is_of(self, container_id: str) -> bool:
        """Return whether a container belongs to that attempt."""
        return container_id.startswith(f"session-{self.session_id}-{self.attempt}-")


def subnet(number: int) -> IPv4Network:
    """Return the subnet that a number is."""
    return IPv4Network((number << _SHIFT, PREFIX))


def address(number: int, rank: int) -> IPv4Address:
    """Return the address of one container; the first one of a subnet is nobody's, for Docker takes it for a gateway."""
    return subnet(number)[_FIRST_HOST + rank]


def vxlan(number: int) -> int:
    """Return the number of the VXLAN."""
    return number & _VXLAN_BITS


async def free(db: AsyncSession, count: int, site: IPv4Network) -> list[int]:
    """Return up to `count` numbers that nobody has; nobody else is given any until the transaction ends.

    A network in which a node lies is nobody's, for its containers could not call that node.
    """
    await exclusively(db, NETWORKS_LOCK)
    # where its last node was deleted, nobody has said that the network is gone
    await db.execute(delete(GangNetwork).where(~_has_nodes()))
    first = int(site.network_address) >> _SHIFT
    taken = {*await db.scalars(select(GangNetwork.number)), *_around(await _addresses(db))}
    found = (number for number in range(first, first + capacity(site)) if number not in taken)
    return list(islice(found, count))


async def taken(db: AsyncSession) -> int:
    """Return how many numbers somebody has."""
    return await db.scalar(select(func.count()).select_from(GangNetwork).where(_has_nodes())) or 0


async def room(db: AsyncSession, site: IPv4Network) -> Networks:
    """Return how many networks the site has room for, and how many of these `free` would give now."""
    first, count = int(site.network_address) >> _SHIFT, capacity(site)
    given = {*await db.scalars(select(GangNetwork.number).where(_has_nodes()))}
    lost = {*given, *_around(await _addresses(db))}
    return Networks(count, count - sum(first <= number < first + count for number in lost))


async def give(db: AsyncSession, numbers: Mapping[UUID, int]) -> None:
    """Give numbers to sessions that have just got their places."""
    if not numbers:
        return
    # what is asked of agents stays as it is from here on, whatever is chosen later
    chosen = await _interfaces(db, numbers)
    for session_id, number in numbers.items():
        values = {"network": number, "interfaces": chosen.get(session_id, {})}
        await db.execute(
            update(Session).where(Session.id == session_id).values(**values),
            execution_options={"synchronize_session": False},
        )
    attempts = select(Session.network, Session.id, Session.attempt).where(among(Session.id, numbers))
    await db.execute(insert(GangNetwork).from_select(["number", "session_id", "attempt"], attempts))
    nodes = select(Session.network, Container.node_id).join(Container, Container.session_id == Session.id).distinct()
    theirs = nodes.where(among(Session.id, numbers))
    await db.execute(insert(GangNode).from_select(["number", "node_id"], theirs))


async def extend(db: AsyncSession, session_id: UUID, node_ids: Collection[UUID]) -> None:
    """Note that a session may get containers on further nodes: its network is theirs until they have none of it."""
    number = await db.scalar(select(Session.network).where(Session.id == session_id))
    further = (await db.scalars(select(Node).where(among(Node.id, node_ids), Node.address != ""))).all()
    reach = {node.name: interfaces.address_of(node) or node.address for node in further}
    noted = await db.scalar(select(Session.interfaces).where(Session.id == session_id)) or {}
    query = update(Session).where(Session.id == session_id).values(reach=reach, interfaces=_chosen(further) | noted)
    await db.execute(query, execution_options={"synchronize_session": False})
    if number is None:
        return
    known = set(await db.scalars(select(GangNode.node_id).where(GangNode.number == number)))
    added = [{"number": number, "node_id": id_} for id_ in sorted(set(node_ids) - known)]
    if added:
        await db.execute(insert(GangNode), added)


async def number_of(db: AsyncSession, session_id: UUID, attempt: int) -> int | None:
    """Return the number that an attempt of a session has, or still has."""
    query = select(GangNetwork.number).where(GangNetwork.session_id == session_id, GangNetwork.attempt == attempt)
    return await db.scalar(query)


async def leave(db: AsyncSession, number: int, node_ids: Collection[UUID]) -> None:
    """Note that nodes have no container on a network any more; after the last one its number is free."""
    await db.execute(delete(GangNode).where(GangNode.number == number, among(GangNode.node_id, node_ids)))
    await db.execute(delete(GangNetwork).where(GangNetwork.number == number, ~_has_nodes()))


async def left(db: AsyncSession, node_ids: Collection[UUID]) -> list[Left]:
    """Return what is over and of which some nodes may still have containers."""
    over = or_(Session.id.is_(None), Session.attempt != GangNetwork.attempt, Session.state.in_((*ENDED, State.PENDING)))
    query = select(GangNode.number, GangNode.node_id, GangNetwork.session_id, GangNetwork.attempt, Session.since)
    query = query.join(GangNetwork, GangNetwork.number == GangNode.number)
    query = query.outerjoin(Session, Session.id == GangNetwork.session_id)
    rows = await db.execute(query.where(over, among(GangNode.node_id, node_ids)))
    return [Left(*row) for row in rows]


async def _interfaces(db: AsyncSession, session_ids: Collection[UUID]) -> Mapping[UUID, dict[str, list[str]]]:
    """Return by which interfaces of their nodes sessions meet, where some were chosen."""
    places = select(Container.session_id, Node).join(Node, Node.id == Container.node_id)
    found: defaultdict[UUID, dict[str, list[str]]] = defaultdict(dict)
    for session_id, node in await db.execute(places.where(among(Container.session_id, session_ids), _HAS_CHOICE)):
        found[session_id] |= _chosen([node])
    return found


def _chosen(nodes: Iterable[Node]) -> dict[str, list[str]]:
    """Return the interfaces that were chosen and have an address, and that, by the names of their nodes."""
    return {node.name: [node.interface, address] for node in nodes if (address := interfaces.address_of(node))}


async def _addresses(db: AsyncSession) -> list[str]:
    """Return the addresses of all nodes by which they are called, or reached by containers of others."""
    # each cycle asks, and to read all that agents have told of 2,000 nodes would take longer than the rest of it
    chosen = await db.scalars(select(_CHOSEN_ADDRESS).where(_HAS_CHOICE))
    return [*await db.scalars(select(Node.address)), *filter(None, chosen)]


def _around(addresses: Iterable[str]) -> Iterator[int]:
    """Yield the numbers of the networks in which addresses lie."""
    for text in addresses:
        with contextlib.suppress(ValueError):
            yield int(IPv4Address(text)) >> _SHIFT


def _has_nodes() -> ColumnElement[bool]:
    return select(GangNode.number).where(GangNode.number == GangNetwork.number).exists()
