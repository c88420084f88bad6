"""The places of sessions as a launcher is asked for them."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import Numeric, cast, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.engine.launcher import Held, LeasedNode
from api.settings import Launching, Settings
from api.tables.nodes import Node
from api.tables.sessions import HOLDS, Container, Session, State
from common.lease_protocol import Lease

CORE = 1000


def lease_of(session: Session) -> Lease:
    """Return the lease of a session's present attempt."""
    return Lease(session.id, session.attempt)


def leased_nodes(session: Session) -> list[LeasedNode]:
    """Return what a session takes of each node: each container takes whole cores, and one at least."""
    places: dict[str, LeasedNode] = {}
    for container in session.containers:
        name = container.node.name
        before = places.get(name, LeasedNode(name, 0, 0, 0))
        places[name] = LeasedNode(
            name,
            before.gpu_milli + sum(share.milli for share in container.gpu_shares),
            before.cores + whole_cores(session.cpu_milli) // CORE,
            before.memory_mib + session.memory_mib,
        )
    return [places[name] for name in sorted(places)]


def whole_cores(cpu_milli: int) -> int:
    """Return the cores that a launcher lends for so many thousandths, in thousandths; one for what has no limit."""
    return max(1, -(-cpu_milli // CORE)) * CORE


def counted_cpu_milli(cpu_milli: int, settings: Settings) -> int:
    """Return what counts of the cores of a container: whole ones where a launcher lends no others."""
    return whole_cores(cpu_milli) if settings.engine is Launching.SLURM else cpu_milli


async def taken(db: AsyncSession) -> dict[str, Held]:
    """Return what sessions hold of nodes by their leases."""
    cores = func.greatest(1, func.ceil(Session.cpu_milli / cast(CORE, Numeric))) * CORE
    holding = select(Session.id, cores.label("cpu_milli"), Session.memory_mib).where(HOLDS).subquery()
    query = (
        select(Node.name, func.sum(holding.c.cpu_milli), func.sum(holding.c.memory_mib))
        .join(Container, Container.node_id == Node.id)
        .join(holding, holding.c.id == Container.session_id)
        .group_by(Node.name)
    )
    return {name: Held(int(cpu), int(memory)) for name, cpu, memory in await db.execute(query)}


async def held(db: AsyncSession, states: Collection[State] | None) -> dict[UUID, int]:
    """Return the attempts of all sessions that hold places, or of those in some of these states."""
    query = select(Session.id, Session.attempt).where(HOLDS)
    if states is not None:
        query = query.where(Session.state.in_(states))
    return {row.id: row.attempt for row in await db.execute(query)}
