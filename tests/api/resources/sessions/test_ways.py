"""Ways between GPUs that sessions ask for: refused, placed, and handed to the agents."""

from __future__ import annotations

from typing import Any

import pytest

from common.protocol import HEARTBEAT_PATH, PROTOCOL_HEADER, GpuDevice
from common.rdma import Hca
from tests.api.cluster import V1, Cluster, ok, refused
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio

HCA = Hca(name="mlx5_0:1", rate_gbps=100, link_layer="InfiniBand", state="ACTIVE", numa_node=0, distances={0: 10})
NO_ADDRESS = "ib_address is not set for it in the site file"


async def report(cluster: Cluster, name: str, islands: tuple[int, ...] = (0, 0, 1, 1), **fields: Any) -> None:
    gpus = [
        GpuDevice(index=index, uuid=f"GPU-{name}-{index}", model="A100", memory_mib=40960, island=island)
        for index, island in enumerate(islands)
    ]
    running = [state for (node, _), state in cluster.engine.containers.items() if node == name]
    told = beat(next(cluster.sequences), name=name, containers=running)
    told = told.model_copy(update={"node_info": told.node_info.model_copy(update={"gpus": gpus, **fields})})
    headers = {"X-Client-Verify": "SUCCESS", "X-Client-Name": name, PROTOCOL_HEADER: "1"}
    async with cluster.client(**headers) as agent:
        answer = await agent.post(HEARTBEAT_PATH, json=told.model_dump(mode="json"))
    assert answer.status_code == 200, answer.text
    await cluster.settle()


async def prepare(cluster: Cluster) -> None:
    """One node with InfiniBand, one with NVLink, and one with both."""
    await cluster.add_image()
    await cluster.add_project("team-a", 12000)
    await report(cluster, "fabric", rdma=True, hcas=[HCA])
    await report(cluster, "links", nvlink=True, no_rdma=NO_ADDRESS, hcas=[HCA])
    await report(cluster, "both", nvlink=True, rdma=True, hcas=[HCA])


def wanted(**more: Any) -> dict[str, Any]:
    return {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 2000, **more}


async def nodes(cluster: Cluster, **more: Any) -> list[str]:
    await ok(cluster.admin.post(f"{V1}/sessions", json=wanted(**more)))
    await cluster.settle()
    return [container["node"] for container in (await cluster.session("demo"))["containers"]]


async def test_a_node_shows_its_fabric(cluster: Cluster) -> None:
    await report(cluster, "links", nvlink=True, no_rdma=NO_ADDRESS, hcas=[HCA])
    (shown,) = await ok(cluster.admin.get(f"{V1}/nodes"))
    assert (shown["nvlink"], shown["rdma"], shown["no_rdma"]) == (True, False, NO_ADDRESS)
    assert shown["hcas"] == [HCA.model_dump(mode="json")]
    await report(cluster, "links", nvlink=True, rdma=True)
    (shown,) = await ok(cluster.admin.get(f"{V1}/nodes"))
    assert (shown["rdma"], shown["no_rdma"], shown["hcas"]) == (True, "", [])


async def test_containers_that_need_rdma_are_where_it_is(cluster: Cluster) -> None:
    await prepare(cluster)
    assert sorted(await nodes(cluster, replicas=4, rdma=True)) == ["both", "both", "fabric", "fabric"]
    specs = list(cluster.engine.specs.values())
    assert all(spec.rdma for spec in specs)
    assert {spec.environment["NCCL_DEBUG"] for spec in specs} == {"INFO"}


async def test_gpus_that_need_p2p_are_in_one_island_of_a_node_with_nvlink(cluster: Cluster) -> None:
    await prepare(cluster)
    (node,) = await nodes(cluster, p2p=True)
    assert node in {"links", "both"}
    shares = (await cluster.session("demo"))["containers"][0]["gpus"]
    assert {share["index"] for share in shares} in ({0, 1}, {2, 3})
    (spec,) = cluster.engine.specs.values()
    assert "NCCL_P2P_DISABLE" not in spec.environment
    refusal = await refused(
        cluster.admin.post(f"{V1}/sessions", json=wanted(name="large", gpu_milli=3000, p2p=True)), 422
    )
    assert "the largest island that it may use has 2 GPUs" in refusal["reason"]


async def test_p2p_that_is_off_is_told_to_nccl(cluster: Cluster) -> None:
    await prepare(cluster)
    await nodes(cluster, p2p=False)
    (spec,) = cluster.engine.specs.values()
    assert spec.environment["NCCL_P2P_DISABLE"] == "1"
    assert "NCCL_DEBUG" not in spec.environment
    assert not spec.rdma


async def test_who_asks_for_nothing_is_told_nothing(cluster: Cluster) -> None:
    await prepare(cluster)
    await nodes(cluster, environment={"NCCL_P2P_DISABLE": "1", "NCCL_NET": "Socket"})
    (spec,) = cluster.engine.specs.values()
    assert {name for name in spec.environment if name.startswith("NCCL")} == {"NCCL_P2P_DISABLE", "NCCL_NET"}


async def test_what_no_node_has_is_refused_with_the_reason_of_each(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project("team-a", 12000)
    await report(cluster, "one", no_rdma=NO_ADDRESS)
    await report(cluster, "two", no_rdma="it has no InfiniBand HCA")
    refusal = await refused(cluster.admin.post(f"{V1}/sessions", json=wanted(replicas=2, rdma=True)), 422)
    assert refusal["where"] == "rdma"
    reason = f"no node that it may use has RDMA (one: {NO_ADDRESS}, two: it has no InfiniBand HCA)"
    assert (refusal["reason"], refusal["hint"]) == (reason, "submit it without")
    refusal = await refused(cluster.admin.post(f"{V1}/sessions", json=wanted(p2p=True)), 422)
    assert refusal["where"] == "p2p"
    assert "no NVLink joins its GPUs" in refusal["reason"]
    refusal = await refused(cluster.admin.post(f"{V1}/sessions", json=wanted(replicas=2, p2p=True, rdma=True)), 422)
    assert refusal["where"] in {"p2p", "rdma"}


async def test_who_waits_is_told_when_the_way_goes(cluster: Cluster) -> None:
    await prepare(cluster)
    await ok(cluster.admin.post(f"{V1}/sessions", json=wanted(name="first", replicas=4, rdma=True)))
    await ok(cluster.admin.post(f"{V1}/sessions", json=wanted(replicas=2, rdma=True)))
    await cluster.settle()
    assert (await cluster.session("demo"))["cause"] == "no-room"
    for name in ("fabric", "both"):
        await report(cluster, name, no_rdma="no port of it is fit (mlx5_0:1 is DOWN)")
    demo = await cluster.session("demo")
    assert (demo["cause"], demo["state"]) == ("never-fits", "PENDING")
    assert "mlx5_0:1 is DOWN" in demo["reason"]
    assert (await cluster.session("first"))["state"] == "RUNNING", "what runs stays"


@pytest.mark.parametrize(
    ("more", "field", "reason"),
    [
        ({"rdma": True}, "rdma", "one container is on one"),
        ({"rdma": True, "replicas": 2, "gpu_milli": 500}, "rdma", "a part of a GPU has neither"),
        ({"p2p": True, "gpu_milli": 2500}, "p2p", "a part of a GPU has neither"),
        ({"p2p": True, "gpu_milli": 1000}, "p2p", "less than two"),
        ({"p2p": True, "environment": {"NCCL_P2P_DISABLE": "1"}}, "environment", "NCCL_P2P_DISABLE says of p2p"),
        ({"p2p": False, "environment": {"NCCL_P2P_LEVEL": "5"}}, "environment", "NCCL_P2P_LEVEL says of p2p"),
        ({"rdma": True, "replicas": 2, "environment": {"NCCL_IB_DISABLE": "1"}}, "environment", "says of rdma"),
    ],
)
async def test_ways_that_cannot_be_taken_are_refused(
    cluster: Cluster, more: dict[str, Any], field: str, reason: str
) -> None:
    await prepare(cluster)
    refusal = await refused(cluster.admin.post(f"{V1}/sessions", json=wanted(**more)), 422)
    assert refusal["where"] == field
    assert reason in refusal["reason"]
