"""Elastic sessions from end to end: they start with the least, grow, shrink for others, and keep their ranks."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from api.clock import now
from api.control import loop
from api.resources.sessions.elastic import REST
from api.tables.accounting import Span
from api.tables.groups import ResourceGroup
from api.tables.sessions import Container, Session
from api.tables.users import User
from common.protocol import ContainerStatus
from tests.api.cluster import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio
LATER = REST + timedelta(seconds=1)


@pytest.fixture
async def site(cluster: Cluster) -> Cluster:
    await cluster.add_node("worker1", 2)
    await cluster.add_node("worker2", 2)
    await cluster.add_image()
    await cluster.add_project("team-a", 1000)
    await cluster.add_project("team-b", 3000)
    return cluster


async def run(cluster: Cluster) -> None:
    """Let what was begun come to its end, and agents tell of it."""
    for _ in range(3):
        await cluster.settle()
        for name in ("worker1", "worker2"):
            await cluster.heartbeat(name, 2)
    await cluster.settle()


async def later(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    monkeypatch.setattr(loop, "now", lambda: now() + by)
    await run(cluster)


async def ranks(cluster: Cluster, name: str, project: str = "team-a") -> list[int]:
    return [each["rank"] for each in (await cluster.session(name, project))["containers"]]


async def grown(cluster: Cluster) -> dict[str, Any]:
    await cluster.submit("gang", 1000, replicas=1, max_replicas=4)
    await run(cluster)
    return await cluster.session("gang")


async def test_it_grows_while_there_is_room_and_each_container_is_told_who_it_is(site: Cluster) -> None:
    session = await grown(site)
    assert (session["state"], session["replicas"], session["held_milli"]) == ("RUNNING", 4, 4000)
    assert [each["rank"] for each in session["containers"]] == [0, 1, 2, 3]
    specs = {spec.environment["PENSTOCK_RANK"]: spec for spec in site.engine.specs.values()}
    assert specs.keys() == {"0", "1", "2", "3"}
    first = specs["0"].network
    assert first is not None
    for rank, spec in specs.items():
        told = spec.environment
        assert told["PET_NNODES"] == "1:4"
        assert told["PET_RDZV_ENDPOINT"] == f"{first.address}:29500"
        assert told["PET_RDZV_CONF"] == f"is_host={int(rank == '0')}"
        assert "WORLD_SIZE" not in told
        assert spec.network is not None
        assert spec.network.hosts == first.hosts
        assert len(spec.network.hosts) == 4
        assert len(spec.network.peers) == 1, "the other node, whether or not it has a container yet"


async def test_it_grows_on_when_a_container_took_its_time_to_start(
    site: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler has looked at it while that was on its way."""
    await site.submit("owner", 1000, "team-b", replicas=3, preemptible=False)
    await site.submit("gang", 1000, replicas=1, max_replicas=4)
    await run(site)
    site.engine.first_status = ContainerStatus.PULLING
    await ok(site.admin.delete(f"{V1}/sessions/owner", params={"project": "team-b"}))
    await site.submit("other", 2000, "team-b", preemptible=False)
    await run(site)
    assert len(await ranks(site, "gang")) == 2
    site.engine.first_status = ContainerStatus.RUNNING
    for key, state in list(site.engine.containers.items()):
        site.engine.containers[key] = state.model_copy(update={"status": ContainerStatus.RUNNING})
    await run(site)
    await ok(site.admin.delete(f"{V1}/sessions/other", params={"project": "team-b"}))
    await run(site)
    assert len(await ranks(site, "gang")) == 2, "it keeps its containers for a while"
    await later(site, monkeypatch, LATER)
    assert await ranks(site, "gang") == [0, 1, 2, 3]


async def test_it_says_why_it_does_not_grow_until_it_does(site: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.submit("owner", 1000, "team-b", replicas=3, preemptible=False)
    await site.submit("gang", 1000, replicas=1, max_replicas=3)
    await run(site)
    stuck = await site.session("gang")
    assert stuck["not_grown"] == "no node has 1 GPU free; every GPU in service that it may use is in use"
    async with site.database.reading() as db:
        before = await db.scalar(select(Session.revision).where(Session.name == "gang"))
    await site.settle()
    async with site.database.reading() as db:
        assert await db.scalar(select(Session.revision).where(Session.name == "gang")) == before
        assert await db.scalar(select(Session.not_grown_parts).where(Session.name == "gang"))
    await ok(site.admin.delete(f"{V1}/sessions/owner", params={"project": "team-b"}))
    await later(site, monkeypatch, LATER)
    assert len(await ranks(site, "gang")) == 3
    assert (await site.session("gang"))["not_grown"] == ""


async def test_until_it_is_looked_at_it_says_what_it_waits_for(site: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.submit("owner", 1000, "team-b", replicas=2, preemptible=False)
    await site.submit("gang", 1000, replicas=1, max_replicas=3)
    site.engine.first_status = ContainerStatus.RUNNING
    await run(site)
    gang = await site.session("gang")
    assert gang["replicas"] == 2, "it has what is free"
    assert re.fullmatch(r"it keeps its containers for a while; it may have more from 20.* UTC on", gang["not_grown"])
    async with site.database.transaction() as db:
        await db.execute(update(Container).where(Container.rank == 1).values(status=ContainerStatus.PULLING))
    assert (await site.session("gang"))["not_grown"] == "it may have more once all of its containers run"
    async with site.database.transaction() as db:
        await db.execute(update(Container).values(status=ContainerStatus.RUNNING))
        await db.execute(update(Session).values(replicas_at=now() - LATER))
    assert (await site.session("gang"))["not_grown"] == "waits for the scheduler"
    await later(site, monkeypatch, LATER)
    assert (await site.session("gang"))["not_grown"].startswith("no node has 1 GPU free")


async def test_one_that_waits_again_says_nothing_of_growth(site: Cluster) -> None:
    await site.submit("owner", 1000, "team-b", replicas=3, preemptible=False)
    await site.submit("gang", 1000, replicas=1, max_replicas=3)
    await run(site)
    assert (await site.session("gang"))["not_grown"]
    await ok(site.admin.post(f"{V1}/sessions/gang/restart", params={"project": "team-a"}))
    assert (await site.session("gang"))["not_grown"] == ""


async def test_it_shrinks_for_an_owner_and_goes_on(site: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await grown(site)
    await site.submit("owner", 2000, "team-b")
    await run(site)
    after = await site.session("gang")
    assert (after["state"], after["attempt"], after["replicas"], after["held_milli"]) == ("RUNNING", 0, 2, 2000)
    assert (await site.session("owner", "team-b"))["state"] == "RUNNING"
    kept = {each["rank"] for each in after["containers"]}
    assert 0 in kept
    assert len(kept) == 2
    assert len([key for key in site.engine.containers if session["id"] in key[1]]) == 2

    await ok(site.admin.delete(f"{V1}/sessions/owner", params={"project": "team-b"}))
    await run(site)
    assert len(await ranks(site, "gang")) == 2, "it keeps its containers for a while"
    await later(site, monkeypatch, LATER)
    assert await ranks(site, "gang") == [0, 1, 2, 3]


async def test_each_number_of_containers_is_a_span_and_an_event(site: Cluster) -> None:
    await grown(site)
    await site.submit("owner", 2000, "team-b")
    await run(site)
    async with site.database.reading() as db:
        rows = await db.scalars(select(Span).where(Span.session_name == "gang").order_by(Span.started_at))
        assert [span.gpu_milli for span in rows] == [1000, 4000, 2000]
    told = await ok(site.admin.get(f"{V1}/sessions/gang/events", params={"project": "team-a"}))
    reasons = [each["reason"] for each in told]
    assert "4 containers, before 1" in reasons
    assert "2 containers, before 4" in reasons


async def test_one_that_is_requeued_asks_for_the_least_again(site: Cluster) -> None:
    await grown(site)
    await site.submit("first", 2000, "team-b")
    await site.submit("second", 1000, "team-b")
    await run(site)
    assert len(await ranks(site, "gang")) == 1
    await ok(site.admin.post(f"{V1}/sessions/gang/restart", params={"project": "team-a"}))
    await run(site)
    session = await site.session("gang")
    assert (session["attempt"], session["replicas"]) == (1, 1)


async def test_a_new_container_that_does_not_start_leaves_the_others_alone(site: Cluster) -> None:
    await site.submit("gang", 1000, replicas=1, max_replicas=2)
    await site.settle()
    for name in ("worker1", "worker2"):
        await site.heartbeat(name, 2)
    await site.settle()
    (key,) = [key for key in site.engine.containers if key[1].endswith("-0-1")]
    state = site.engine.containers[key]
    failed = state.model_copy(update={"status": ContainerStatus.FAILED, "error": "no room", "started_at": None})
    site.engine.containers[key] = failed
    await run(site)
    session = await site.session("gang")
    assert session["state"] == "RUNNING"
    assert await ranks(site, "gang") == [0]


async def test_it_ends_when_those_that_ran_have_ended(site: Cluster) -> None:
    session = await grown(site)
    for key, state in list(site.engine.containers.items()):
        done = state.model_copy(update={"status": ContainerStatus.EXITED, "exit_code": 0})
        site.engine.containers[key] = done
    await run(site)
    assert (await site.states())[session["name"]] == "TERMINATED"


async def half_grown(cluster: Cluster) -> None:
    """Let a session have two containers on nodes of a group, where another one leaves no room for more."""
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    groups = ({"name": "ours", "nodes": ["worker1", "worker2"], "open": True}, {"name": "empty"})
    for group in groups:
        await ok(cluster.admin.post(f"{V1}/resource-groups", json=group))
    await cluster.submit("owner", 2000, "team-b")
    await run(cluster)
    await cluster.submit("gang", 1000, replicas=1, max_replicas=4)
    await run(cluster)
    assert len(await ranks(cluster, "gang")) == 2


async def move(cluster: Cluster, table: type[User | ResourceGroup], name: str, domain: str | None) -> None:
    async with cluster.database.transaction() as db:
        await db.execute(update(table).where(table.name == name).values(domain=domain))


async def make_room(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await ok(cluster.admin.delete(f"{V1}/sessions/owner", params={"project": "team-b"}))
    await run(cluster)
    await later(cluster, monkeypatch, LATER)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("resource-groups/ours", {"domain": "acme"}),
        ("resource-groups/ours", {"open": False}),
        ("projects/team-a", {"training_group": "empty"}),
    ],
)
async def test_it_grows_on_no_nodes_that_it_may_not_use_any_more(
    site: Cluster, monkeypatch: pytest.MonkeyPatch, path: str, change: dict[str, Any]
) -> None:
    await half_grown(site)
    await ok(site.admin.patch(f"{V1}/{path}", json=change))
    await make_room(site, monkeypatch)
    assert len(await ranks(site, "gang")) == 2


async def test_it_grows_in_no_group_of_a_domain_that_its_user_has_left(
    site: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await half_grown(site)
    await move(site, User, "admin", "acme")
    await move(site, ResourceGroup, "ours", "acme")
    await site.settle()
    await move(site, User, "admin", None)
    await make_room(site, monkeypatch)
    assert len(await ranks(site, "gang")) == 2


async def test_a_user_counts_with_the_most_containers(site: Cluster) -> None:
    await ok(site.admin.post(f"{V1}/user-policies", json={"name": "small", "max_gpu_milli": 3000}))
    await ok(site.admin.patch(f"{V1}/users/admin", json={"policy": "small"}))
    body = {"name": "g", "project": "team-a", "image": "python", "gpu_milli": 1000, "replicas": 1, "max_replicas": 4}
    await refused(site.admin.post(f"{V1}/sessions", json=body), 409)
    await site.submit("g", 1000, replicas=1, max_replicas=3)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"preemptible": False}, "preemptible"),
        ({"within": "node", "within_required": True}, "within_required"),
        ({"replicas": 5}, "max_replicas"),
    ],
)
async def test_what_cannot_change_is_refused(site: Cluster, more: dict[str, Any], field: str) -> None:
    body = {"name": "g", "project": "team-a", "image": "python", "gpu_milli": 500, "replicas": 1, "max_replicas": 4}
    assert (await refused(site.admin.post(f"{V1}/sessions", json={**body, **more}), 422))["where"] == field


async def test_its_share_stays(site: Cluster) -> None:
    await site.submit("gang", 500, replicas=1, max_replicas=2)
    await run(site)
    path = f"{V1}/sessions/gang"
    told = await refused(site.admin.patch(path, params={"project": "team-a"}, json={"gpu_milli": 600}), 409)
    assert "number of containers" in told["reason"]
