"""Queries of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.nodes.models import Node, NodeState


async def every(db: AsyncSession) -> Sequence[Node]:
    """Return all nodes by name."""
    return (await db.scalars(select(Node).order_by(Node.name))).all()


async def by_name(db: AsyncSession, name: str) -> Node | None:
    """Return the node of that name."""
    return (await db.scalars(select(Node).where(Node.name == name))).one_or_none()


async def by_names(db: AsyncSession, names: Iterable[str]) -> dict[str, Node]:
    """Return the nodes of those names that exist, by name."""
    rows = await db.scalars(select(Node).where(Node.name.in_(list(names))))
    return {node.name: node for node in rows}


async def by_id(db: AsyncSession, node_id: UUID) -> Node | None:
    """Return a node by its id."""
    return await db.get(Node, node_id)


def add(db: AsyncSession, node: Node) -> None:
    """Add a node to the transaction."""
    db.add(node)


async def silent(db: AsyncSession, since: datetime) -> Sequence[Node]:
    """Return the ready nodes that were last seen before a moment."""
    query = select(Node).where(Node.state == NodeState.READY, Node.last_seen < since)
    return (await db.scalars(query.order_by(Node.name))).all()
