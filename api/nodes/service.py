"""Rules of nodes: they come to be by their first heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.nodes import repository
from api.nodes.heartbeats import Report
from api.nodes.models import Gpu, Node, NodeState
from appliance.agent.protocol import Inventory
from reservoir.errors import NotFoundError

DESCRIBED = tuple(Inventory.model_fields.keys() - {"name", "gpus"})
"""What a node's row takes over from the inventory as it is."""


async def every(db: AsyncSession) -> Sequence[Node]:
    """Return all nodes by name."""
    return await repository.every(db)


async def get(db: AsyncSession, name: str) -> Node:
    """Return one node; raises NotFoundError."""
    node = await repository.by_name(db, name)
    if node is None:
        raise NotFoundError(f"there is no node {name}", where="name", cure="list the nodes")
    return node


async def by_id(db: AsyncSession, node_id: UUID) -> Node | None:
    """Return a node by its id."""
    return await repository.by_id(db, node_id)


async def record(db: AsyncSession, reports: Sequence[Report]) -> dict[str, Node]:
    """Write what heartbeats say of their nodes; returns the nodes by name."""
    nodes = await repository.by_names(db, [report.heartbeat.name for report in reports])
    for report in reports:
        name = report.heartbeat.name
        if name not in nodes:
            nodes[name] = Node(name=name, gpus=[])
            repository.add(db, nodes[name])
        _describe(nodes[name], report)
    await db.flush()
    return nodes


async def mark_lost(db: AsyncSession, since: datetime) -> Sequence[Node]:
    """Mark the nodes that have not reported since a moment as lost; return them."""
    silent = await repository.silent(db, since)
    for node in silent:
        node.state = NodeState.LOST
    return silent


async def any_silent(db: AsyncSession, since: datetime) -> bool:
    """Return whether `mark_lost` would find any."""
    return bool(await repository.silent(db, since))


def _describe(node: Node, report: Report) -> None:
    heartbeat, inventory = report.heartbeat, report.heartbeat.inventory
    node.address, node.port = heartbeat.address, heartbeat.port
    node.state = NodeState.READY
    node.last_seen = report.received_at
    for field in DESCRIBED:
        setattr(node, field, getattr(inventory, field))
    known = {gpu.uuid: gpu for gpu in node.gpus}
    for device in inventory.gpus:
        gpu = known.pop(device.uuid, None)
        if gpu is None:
            node.gpus.append(Gpu(**device.model_dump()))
            continue
        for field, value in device.model_dump().items():
            setattr(gpu, field, value)
    for gpu in known.values():
        node.gpus.remove(gpu)
