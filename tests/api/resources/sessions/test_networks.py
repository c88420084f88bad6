"""Networks between the containers of a session: who has which, for how long, and what containers are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from ipaddress import IPv4Network
from typing import Any

import pytest
from sqlalchemy import delete as deleted
from sqlalchemy import func, select

from api.engine.base import UnreachableError
from api.resources.sessions import networks, scheduling, service
from api.resources.sessions.scheduling import Placed
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Placement
from api.tables.nodes import Node
from api.tables.sessions import GangNetwork, GangNode, Session, State
from common.protocol import ContainerSpec
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.api.steps import delete, lose, run, try_again

pytestmark = pytest.mark.anyio

SESSIONS = 12


def specs(cluster: Cluster, session: dict[str, Any]) -> list[ContainerSpec]:
    """Return what agents were asked for, for the last attempt of a session, in the order of ranks."""
    ids = [f"session-{session['id']}-{session['attempt']}-{rank}" for rank in range(session["replicas"])]
    return [cluster.engine.specs[id_] for id_ in ids]


async def taken(cluster: Cluster) -> list[int]:
    async with cluster.database.reading() as db:
        return sorted(await db.scalars(select(GangNetwork.number)))


async def spread(cluster: Cluster, name: str = "gang", **more: Any) -> dict[str, Any]:
    """Run a session of two containers on the nodes worker1 and worker2, which have four GPUs each."""
    session = await run(cluster, name, replicas=2, gpu_milli=3000, **more)
    assert {each["node"] for each in session["containers"]} == {"worker1", "worker2"}
    return session


@pytest.fixture
async def pair(ready: Cluster) -> Cluster:
    """Two nodes of four GPUs."""
    await ready.add_node("worker2")
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 8000}))
    return ready


@pytest.fixture
async def narrow(database_url: str) -> AsyncIterator[Cluster]:
    """A site that has room for two networks."""
    async with running_cluster(database_url, gang_networks=IPv4Network("10.9.0.0/26")) as cluster:
        await cluster.add_node()
        await cluster.add_image()
        await cluster.add_project("team-a", 4000)
        yield cluster


async def test_the_containers_of_a_session_have_addresses_on_a_network_of_it_alone(ready: Cluster) -> None:
    first, second = await run(ready, "first", replicas=3), await run(ready, "second", replicas=2)
    given = [spec.network for spec in specs(ready, first)]
    assert [str(each.address) for each in given if each] == ["100.96.0.2", "100.96.0.3", "100.96.0.4"]
    assert {str(each.subnet) for each in given if each} == {"100.96.0.0/27"}
    assert [each.name for each in given if each] == ["first-0", "first-1", "first-2"]
    assert all(each and not each.peers for each in given), "all are on one node"
    other = specs(ready, second)[0].network
    assert other
    assert str(other.subnet) == "100.96.0.32/27"
    assert {each.number for each in given if each} & {other.number} == set()


async def test_a_session_of_one_container_has_none(ready: Cluster) -> None:
    [spec] = specs(ready, await run(ready))
    assert spec.network is None
    assert not [name for name in spec.environment if name.startswith(("MASTER", "PENSTOCK"))]
    assert await taken(ready) == []


async def test_containers_on_several_nodes_know_the_other_nodes(pair: Cluster) -> None:
    session = await spread(pair)
    for spec in specs(pair, session):
        assert spec.network
        assert spec.network.peers == ["192.0.2.10"], "as the other node reports"
        assert spec.network.hosts.keys() == {"gang-0", "gang-1"}


async def test_programs_find_each_other_by_their_environment(ready: Cluster) -> None:
    session = await run(ready, "gang", replicas=2, environment={"MASTER_PORT": "12345"})
    _, second = specs(ready, session)
    expected = {
        "PENSTOCK_RANK": "1",
        "PENSTOCK_SIZE": "2",
        "PENSTOCK_HOSTS": "gang-0,gang-1",
        "MASTER_ADDR": "100.96.0.2",
        "MASTER_PORT": "12345",
        "WORLD_SIZE": "2",
        "RANK": "1",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "100.96.0.2",
        "PET_MASTER_PORT": "29500",
    }
    assert second.environment == expected


async def test_a_number_is_free_when_the_containers_are_gone_and_not_before(pair: Cluster) -> None:
    await spread(pair)
    [number] = await taken(pair)
    pair.engine.failure = UnreachableError("no answer", delivered=True)
    await delete(pair, "gang")
    await pair.settle()
    assert await taken(pair) == [number]
    pair.engine.failure = None
    await try_again(pair)
    assert (await pair.states())["gang"] == "TERMINATED"
    assert await taken(pair) == []


async def test_a_repeated_launch_asks_for_the_same_network(ready: Cluster) -> None:
    ready.engine.failure = UnreachableError("no answer", delivered=True)
    await ready.submit("gang", replicas=2)
    await ready.settle()
    before = await taken(ready)
    ready.engine.failure = None
    await try_again(ready)
    session = await ready.session("gang")
    assert session["state"] == "RUNNING"
    assert {spec.network.subnet for spec in specs(ready, session) if spec.network} == {networks.subnet(before[0])}
    assert await taken(ready) == before


async def test_a_session_that_is_taken_back_gets_another_network_with_its_next_places(ready: Cluster) -> None:
    await run(ready, "gang", replicas=2)
    async with ready.database.transaction() as db:
        [row] = await service.in_states(db, [State.RUNNING])
        assert await service.reclaim(db, row.id, row.revision, "reclaimed")
    await ready.settle()
    again = await ready.session("gang")
    assert (again["state"], again["attempt"]) == ("RUNNING", 1)
    assert len(await taken(ready)) == 1


async def test_a_lost_node_keeps_the_number_until_it_says_that_nothing_is_left(pair: Cluster) -> None:
    before = await spread(pair)
    [number] = await taken(pair)
    await pair.add_node("worker3")
    await lose(pair, "worker1")
    await pair.settle()
    again = await pair.session("gang")
    assert (again["state"], again["attempt"]) == ("RUNNING", 1)
    assert len(await taken(pair)) == 2, "what is left on worker1 may still speak"
    old = [state for (node, _), state in pair.engine.containers.items() if node == "worker1"]
    assert [state.id.rsplit("-", 2)[0] for state in old] == [f"session-{before['id']}"]

    await pair.heartbeat("worker1", containers=old)
    await pair.settle()
    assert len(await taken(pair)) == 2
    await pair.heartbeat("worker1", containers=[])
    await pair.settle()
    assert number not in await taken(pair)
    assert len(await taken(pair)) == 1


async def test_a_session_that_comes_back_with_its_node_has_its_network_again(ready: Cluster) -> None:
    session = await run(ready, "gang", replicas=2)
    [number] = await taken(ready)
    await lose(ready)
    assert (await ready.session("gang"))["state"] == "PENDING"
    assert await taken(ready) == [number]
    await ready.heartbeat()
    await ready.settle()
    assert (await ready.session("gang"))["attempt"] == session["attempt"]
    assert await taken(ready) == [number]
    async with ready.database.reading() as db:
        assert await db.scalar(select(Session.network)) == number
    await delete(ready, "gang")
    await ready.settle()
    assert await taken(ready) == []


async def test_a_node_that_is_deleted_keeps_no_number(pair: Cluster) -> None:
    await spread(pair)
    async with pair.database.transaction() as db:
        for name in ("worker1", "worker2"):
            id_ = await db.scalar(select(Node.id).where(Node.name == name))
            await db.execute(deleted(GangNode).where(GangNode.node_id == id_))
    async with pair.database.transaction() as db:
        first = await networks.free(db, 1, pair.settings.gang_networks)
        assert networks.subnet(first[0]) == IPv4Network("100.96.0.0/27")
    assert await taken(pair) == []


async def test_without_a_free_network_a_session_says_so_and_starts_as_soon_as_there_is_one(narrow: Cluster) -> None:
    for name in ("first", "second"):
        await run(narrow, name, replicas=2)
    await narrow.submit("third", replicas=2)
    await narrow.submit("single")
    await narrow.settle()
    third = await narrow.session("third")
    assert (third["state"], third["cause"]) == ("PENDING", "no-network")
    assert third["reason"].startswith("all 2 networks between containers of a session are taken or kept for others; ")
    assert (await narrow.session("single"))["state"] == "RUNNING", "it needs none"
    await delete(narrow, "first")
    await narrow.settle()
    third = await narrow.session("third")
    assert (third["state"], third["cause"], third["reason"]) == ("RUNNING", "", "")


async def test_nobody_is_stopped_for_a_session_that_gets_no_network(
    narrow: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it looked at again and again: what is told of it stays until a network is free."""
    await narrow.add_project("guests", 0)
    for name in ("first", "second"):
        await run(narrow, name, replicas=2)
    for name in ("one", "two"):
        await narrow.submit(name, 1000, project="guests")
    await narrow.settle()
    await narrow.submit("third", 1000, replicas=2)
    await narrow.settle()
    assert (await narrow.session("third"))["cause"] == "no-network"
    assert set((await narrow.states("guests")).values()) == {"RUNNING"}
    decided: list[Planner] = []
    decide = Planner.decide

    def counting(self: Planner, *args: Any, **more: Any) -> Any:
        decided.append(self)
        return decide(self, *args, **more)

    monkeypatch.setattr(Planner, "decide", counting)
    for _ in range(3):
        await narrow.manager.loop.run()
    assert len(decided) <= 1


async def test_no_network_lies_where_a_node_is(ready: Cluster) -> None:
    async with ready.database.transaction() as db:
        found = await networks.free(db, 4, IPv4Network("192.0.2.0/25"))
    assert [str(networks.subnet(number)) for number in found] == [
        "192.0.2.32/27",
        "192.0.2.64/27",
        "192.0.2.96/27",
    ], "worker1 is 192.0.2.10"


async def place(small: Cluster, session: Session, node: Node) -> None:
    """Give a session its places in a transaction of its own, as a leader that was just deposed may still do."""
    places = Placed(session.revision, [Placement(node.name, ())] * session.replicas)
    async with small.database.transaction() as db:
        [number] = await networks.free(db, 1, small.settings.gang_networks)
        # long enough for every other transaction to look for a number, too
        await asyncio.sleep(0.05)
        await scheduling.start(db, {session.id: places}, {node.name: node.id}, {session.id: number})


async def test_sessions_that_are_placed_at_once_never_get_one_number(small: Cluster) -> None:
    for number in range(SESSIONS):
        await small.submit(f"gang-{number}", replicas=2)
    async with small.database.reading() as db:
        waiting = await service.in_states(db, [State.PENDING])
        node = (await db.scalars(select(Node))).one()
    await asyncio.gather(*(place(small, session, node) for session in waiting))
    async with small.database.reading() as db:
        numbers = list(await db.scalars(select(Session.network).where(Session.state == State.SCHEDULED)))
        assert len(set(numbers)) == SESSIONS
        assert set(numbers) == set(await db.scalars(select(GangNetwork.number)))
    async with small.database.transaction() as db:
        for taken in numbers:
            assert taken is not None
            await networks.leave(db, taken, [node.id])
    async with small.database.reading() as db:
        assert await db.scalar(select(func.count()).select_from(GangNetwork)) == 0
        assert await db.scalar(select(func.count()).select_from(GangNode)) == 0
