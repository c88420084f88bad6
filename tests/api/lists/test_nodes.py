"""Lists of nodes: their columns, pages, filters, and answers that are as they were."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from api.auth.policy import UserRole
from api.tables.nodes import Node
from common.protocol import HEARTBEAT_PATH
from tests.api.cluster import V1, Cluster, ok, refused
from tests.fakes.heartbeats import node_info

pytestmark = pytest.mark.anyio


async def report(cluster: Cluster, name: str, **described: object) -> None:
    body = {
        "name": name,
        "address": "172.32.0.4",
        "port": 6001,
        "boot": "boot-1",
        "sequence": next(cluster.sequences),
        "node_info": {**node_info(name, 0).model_dump(mode="json"), **described},
    }
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": name}) as agent:
        await ok(agent.post(HEARTBEAT_PATH, json=body))
    await cluster.settle()


def gpus(name: str, count: int) -> list[dict[str, object]]:
    return [gpu.model_dump(mode="json") for gpu in node_info(name, count).gpus]


async def test_every_column_of_three_nodes(cluster: Cluster) -> None:
    started = "2026-11-21T08:00:00Z"
    common = {"region": "seoul", "started_at": started, "driver_version": "580.65", "cuda_version": "13.0"}
    await report(cluster, "gpu1", cpu_milli=79_000, gpus=gpus("gpu1", 16), **common)
    await report(cluster, "gpu2", cpu_milli=95_000, gpus=gpus("gpu2", 16), fractions=False, **common)
    await report(cluster, "cpu1", cpu_milli=255_000, region="busan")
    await ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": "vision", "nodes": ["gpu1"]}))
    cpu1, gpu1, gpu2 = await ok(cluster.admin.get(f"{V1}/nodes"))
    assert gpu1["endpoint"] == "tcp://172.32.0.4:6001"
    assert (gpu1["region"], gpu1["started_at"], gpu1["state"], gpu1["mode"]) == ("seoul", started, "ready", "active")
    assert [node["cpu_milli"] for node in (gpu1, gpu2, cpu1)] == [79_000, 95_000, 255_000]
    assert [node["gpu_milli"] for node in (gpu1, gpu2, cpu1)] == [16_000, 16_000, 0]
    assert [node["fractions"] for node in (gpu1, gpu2)] == [True, False]
    assert (gpu1["driver_version"], gpu1["cuda_version"], gpu1["agent_version"]) == ("580.65", "13.0", "0.1.0")
    assert [node["groups"] for node in (gpu1, gpu2, cpu1)] == [["vision"], [], []]
    assert (gpu1["memory_mib"], gpu1["used_milli"], gpu1["sessions"], gpu1["message"]) == (32768, 0, 0, "")
    assert await ok(cluster.admin.get(f"{V1}/nodes/gpu1")) == gpu1


async def test_a_node_is_told_with_the_groups_by_which_it_was_found(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may read the groups anew meanwhile, and what they read may be older."""
    await cluster.add_node("gpu1", 1)
    known: list[dict[str, tuple[str, ...]]] = [{"gpu1": ("vision",)}, {}]

    async def by_node(_: object) -> dict[str, tuple[str, ...]]:
        return known.pop(0)

    monkeypatch.setattr("api.resources.groups.service.by_node", by_node)
    monkeypatch.setattr("api.lists.nodes.GROUPS_S", -1)
    [found] = await ok(cluster.admin.get(f"{V1}/nodes", params={"group": "vision"}))
    assert found["groups"] == ["vision"]


@pytest.mark.parametrize("page", [f"{V1}/nodes", "/nodes"])
async def test_what_a_domain_no_longer_has_is_not_listed_there(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setattr("api.lists.nodes.GROUPS_S", 3600.0)
    for name in ("worker1", "worker2"):
        await cluster.add_node(name, 1)
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    chief = await cluster.user("chief", UserRole.ADMIN)
    await ok(cluster.admin.patch(f"{V1}/users/chief", json={"domain": "acme"}))
    group = {"name": "night", "domain": "acme", "nodes": ["worker1"]}
    await ok(cluster.admin.post(f"{V1}/resource-groups", json=group))
    assert "worker1" in (await chief.get(page)).text
    exchanged = {"remove_nodes": ["worker1"], "add_nodes": ["worker2"]}
    await ok(cluster.admin.patch(f"{V1}/resource-groups/night", json=exchanged))
    listed = (await chief.get(page)).text
    assert [name for name in ("worker1", "worker2") if name in listed] == ["worker2"]
    # what selects nodes by their hardware has those that have it now
    await ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": "rack", "domain": "acme", "switch": "left"}))
    for switch, there in (("left", ["worker1", "worker2"]), ("right", ["worker2"])):
        async with cluster.database.transaction() as db:
            await db.execute(update(Node).where(Node.name == "worker1").values(switch=switch))
        listed = (await chief.get(page)).text
        assert [name for name in ("worker1", "worker2") if name in listed] == there


async def test_pages(cluster: Cluster) -> None:
    for number in range(5):
        await cluster.add_node(f"worker{number}", 1)
    names, after = [], None
    for _ in range(3):
        response = await cluster.admin.get(f"{V1}/nodes", params={"limit": 2} | ({"after": after} if after else {}))
        names += [node["name"] for node in response.json()]
        after = response.headers.get("X-Next")
    assert names == [f"worker{number}" for number in range(5)]
    assert after is None, "nothing follows"


async def test_what_has_not_changed_is_not_sent_again(cluster: Cluster) -> None:
    await cluster.add_node()
    first = await cluster.admin.get(f"{V1}/nodes")
    again = await cluster.admin.get(f"{V1}/nodes", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    await cluster.heartbeat()
    await cluster.settle()
    changed = await cluster.admin.get(f"{V1}/nodes", headers={"If-None-Match": first.headers["ETag"]})
    assert changed.status_code == 304, "that it was seen since is nothing new"


async def test_filters(cluster: Cluster) -> None:
    await cluster.add_node("worker1")
    await cluster.add_node("worker2")
    await ok(cluster.admin.patch(f"{V1}/nodes/worker2/mode", json={"mode": "maintenance"}))
    await ok(cluster.admin.post(f"{V1}/resource-groups", json={"name": "vision", "nodes": ["worker1"]}))

    async def named(**query: str) -> list[str]:
        return [node["name"] for node in await ok(cluster.admin.get(f"{V1}/nodes", params=query))]

    assert await named(mode="maintenance") == ["worker2"]
    assert await named(mode="active", state="ready") == ["worker1"]
    assert await named(state="lost") == []
    assert await named(group="vision") == ["worker1"]


@pytest.mark.parametrize(
    ("query", "where"),
    [({"limit": 0}, "limit"), ({"limit": 10**9}, "limit"), ({"state": "x"}, "state"), ({"after": "a b"}, "after")],
)
async def test_bad_queries(cluster: Cluster, query: dict[str, str], where: str) -> None:
    assert (await refused(cluster.admin.get(f"{V1}/nodes", params=query), 422))["where"] == where
