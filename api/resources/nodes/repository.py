"""Queries of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Row, and_, delete, func, not_, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.database import among, rows_of
from api.tables.nodes import Node, NodeMode, NodeState

CANNOT_BE_CALLED = "its agent cannot be called since "
"""Begins the message of a node whose agent reports and cannot be called."""
IS_LOST = Node.state == NodeState.LOST
CANNOT_CALL = and_(Node.state == NodeState.READY, Node.message.startswith(CANNOT_BE_CALLED))
THIS_DATABASE = select(func.this_database()).scalar_subquery()
"""Another one after each restore, and after each start of its server."""
HAS_REPORTED = Node.reported_to == THIS_DATABASE
"""What it runs is known: its agent has said it to this database. One that was restored knows less than its agents."""
IS_OPEN = and_(
    HAS_REPORTED,
    Node.state == NodeState.READY,
    Node.mode == NodeMode.ACTIVE,
    Node.unhealthy == "",
    Node.withheld == "",
    Node.unknown_containers == 0,
    Node.clock_offset_s == 0,
    not_(Node.message.startswith(CANNOT_BE_CALLED)),
)
"""It takes new sessions."""
HAS_UNKNOWN = Node.unknown_containers > 0
IS_DRAINING = Node.mode == NodeMode.DRAINING


async def every(db: AsyncSession) -> Sequence[Node]:
    """Return all nodes by name."""
    return (await db.scalars(select(Node).order_by(Node.name))).all()


async def with_open(db: AsyncSession) -> Sequence[Row[Node, bool]]:
    """Return all nodes by name, and whether each takes new sessions."""
    return (await db.execute(select(Node, IS_OPEN).order_by(Node.name))).all()


async def by_name(db: AsyncSession, name: str, *, lock: bool = False) -> Node | None:
    """Return the node of that name; `lock` keeps sessions from being placed on it until the transaction ends."""
    query = select(Node).where(Node.name == name)
    if lock:
        query = query.with_for_update(of=Node).execution_options(populate_existing=True)
    return (await db.scalars(query)).one_or_none()


async def by_names(db: AsyncSession, names: Iterable[str]) -> tuple[dict[str, Node], str]:
    """Return the nodes of those names that exist, by name, with their GPUs, and which database this is."""
    query = select(Node, THIS_DATABASE).where(among(Node.name, names)).options(selectinload(Node.gpus))
    rows = (await db.execute(query)).all()
    return {node.name: node for node, _ in rows}, rows[0][1] if rows else await this_database(db)


async def has_reported(db: AsyncSession, name: str) -> bool:
    """Return whether it is known what the node of that name runs."""
    return await db.scalar(select(Node.id).where(Node.name == name, HAS_REPORTED)) is not None


async def this_database(db: AsyncSession) -> str:
    """Return which database this is: another one after each restore, and after each start of its server."""
    return str((await db.scalars(select(THIS_DATABASE))).one())


async def by_id(db: AsyncSession, node_id: UUID) -> Node | None:
    """Return a node by its id."""
    return await db.get(Node, node_id)


async def other_at(db: AsyncSession, node_id: UUID, address: str) -> str | None:
    """Return the name of another node that has an address, by which it is called or on one of its interfaces."""
    has = or_(Node.address == address, Node.interfaces.contains([{"addresses": [address]}]))
    return await db.scalar(select(Node.name).where(Node.id != node_id, has).order_by(Node.name).limit(1))


def add(db: AsyncSession, node: Node) -> None:
    """Add a node to the transaction."""
    db.add(node)


async def heard(db: AsyncSession) -> dict[UUID, int]:
    """Return how many heartbeats of each node that is not lost were written."""
    query = select(Node.id, Node.heard).where(Node.state != NodeState.LOST)
    return {row.id: row.heard for row in await db.execute(query)}


async def silent(db: AsyncSession, counts: Mapping[UUID, int]) -> Sequence[Node]:
    """Return those of some nodes that are not lost and of which no heartbeat was written since these were counted."""
    query = select(Node).where(Node.state != NodeState.LOST, tuple_(Node.id, Node.heard).in_(list(counts.items())))
    return (await db.scalars(query.order_by(Node.name).with_for_update(of=Node))).all()


async def note_alive(db: AsyncSession, heard: Mapping[str, datetime]) -> set[str]:
    """Move `last_seen` of nodes to when each was heard, but for lost ones; returns the names of those.

    One that has not said to this database what it runs is left out, too: whatever it says is news.
    """
    given = rows_of({"name": (Node.name.type, heard), "at": (Node.last_seen.type, heard.values())})
    locked = (
        select(Node.id, given.c.at)
        .join(given, Node.name == given.c.name)
        .where(Node.state != NodeState.LOST, HAS_REPORTED)
        .order_by(Node.name)
        .with_for_update(of=Node, key_share=True)
        .cte("locked")
    )
    query = update(Node).where(Node.id == locked.c.id)
    query = query.values(heard=Node.heard + 1, last_seen=func.greatest(Node.last_seen, locked.c.at))
    alive = await db.scalars(query.returning(Node.name), execution_options={"synchronize_session": False})
    return set(alive)


async def note_heard(db: AsyncSession, heard: Mapping[UUID, datetime]) -> None:
    """Count a heartbeat of each of some nodes, and when it came."""
    given = rows_of({"id": (Node.id.type, heard), "at": (Node.last_seen.type, heard.values())})
    locked = (
        select(Node.id).join(given, Node.id == given.c.id).order_by(Node.name).with_for_update(of=Node).cte("locked")
    )
    query = update(Node).where(Node.id == locked.c.id, Node.id == given.c.id)
    query = query.values(heard=Node.heard + 1, last_seen=given.c.at)
    await db.execute(query, execution_options={"synchronize_session": False})


async def replace_message(db: AsyncSession, node_id: UUID, old: str, new: str) -> bool:
    """Say something else on a node that is ready, unless what it says has changed since; returns whether it had not.

    The state is written, too, so that the scheduler looks at the node again: its message may close it.
    """
    query = update(Node).where(Node.id == node_id, Node.message == old, Node.state == NodeState.READY)
    query = query.values(message=new, state=NodeState.READY).returning(Node.id)
    return await db.scalar(query, execution_options={"synchronize_session": False}) is not None


async def lost(db: AsyncSession) -> Sequence[Node]:
    """Return the lost nodes."""
    return (await db.scalars(select(Node).where(IS_LOST).order_by(Node.name))).all()


async def not_callable(db: AsyncSession) -> Sequence[Node]:
    """Return the nodes whose agents report and cannot be called."""
    return (await db.scalars(select(Node).where(CANNOT_CALL).order_by(Node.name))).all()


async def draining(db: AsyncSession) -> Sequence[Node]:
    """Return the nodes that are being drained."""
    return (await db.scalars(select(Node).where(IS_DRAINING).order_by(Node.name))).all()


async def move(db: AsyncSession, step: timedelta) -> None:
    """Move when nodes were seen and when drains end, as the clock was set by so much."""
    query = update(Node).values(last_seen=Node.last_seen + step, drain_until=Node.drain_until + step)
    await db.execute(query, execution_options={"synchronize_session": False})


async def forget_reports(db: AsyncSession) -> None:
    """Have all nodes tell anew what they run, before anything is given away or launched there."""
    await db.execute(update(Node).values(reported_to=""), execution_options={"synchronize_session": False})


async def remove(db: AsyncSession, node_id: UUID) -> None:
    """Delete a node and its GPUs."""
    await db.execute(delete(Node).where(Node.id == node_id))
