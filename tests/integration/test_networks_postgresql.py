"""Numbers of networks on PostgreSQL, where two transactions may really want one at once."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import func, select

from api.resources.sessions import networks, scheduling, service
from api.resources.sessions.scheduling import Placed
from api.scheduler.snapshot import Placement
from api.tables.nodes import Node
from api.tables.sessions import GangNetwork, GangNode, Session, State
from tests.api.cluster import Cluster

pytestmark = pytest.mark.anyio

SESSIONS = 12


async def place(cluster: Cluster, session: Session, node: Node) -> None:
    """Give a session its places in a transaction of its own, as a leader that was just deposed may still do."""
    places = Placed(session.revision, [Placement(node.name, ())] * session.size)
    async with cluster.database.transaction() as db:
        [number] = await networks.free(db, 1, cluster.settings.gang_networks)
        # long enough for every other transaction to look for a number, too
        await asyncio.sleep(0.05)
        await scheduling.start(db, {session.id: places}, {node.name: node.id}, {session.id: number})


async def test_sessions_that_are_placed_at_once_never_get_one_number(cluster: Cluster) -> None:
    for number in range(SESSIONS):
        await cluster.submit(f"gang-{number}", size=2)
    async with cluster.database.reading() as db:
        waiting = await service.in_states(db, [State.PENDING])
        node = (await db.scalars(select(Node))).one()
    await asyncio.gather(*(place(cluster, session, node) for session in waiting))
    async with cluster.database.reading() as db:
        numbers = list(await db.scalars(select(Session.network).where(Session.state == State.SCHEDULED)))
        assert len(set(numbers)) == SESSIONS
        assert set(numbers) == set(await db.scalars(select(GangNetwork.number)))
    async with cluster.database.transaction() as db:
        for taken in numbers:
            assert taken is not None
            await networks.leave(db, taken, [node.id])
    async with cluster.database.reading() as db:
        assert await db.scalar(select(func.count()).select_from(GangNetwork)) == 0
        assert await db.scalar(select(func.count()).select_from(GangNode)) == 0
