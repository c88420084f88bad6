"""What a session gets that does not say how much memory and disk it wants: its part of a node."""

from __future__ import annotations

from typing import Any

import pytest

from common.protocol import DEFAULT_SHM_MIB
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster
from tests.api.steps import body, run

pytestmark = pytest.mark.anyio

NODE_MIB, NODE_GPUS, NODE_CORES = 32768, 4, 8
"""What each node of these tests has, as `tests/fakes/heartbeats.py` says."""


async def test_the_share_of_a_gpu_has_that_share_of_its_nodes_memory(ready: Cluster) -> None:
    session = await run(ready, gpu_milli=500)
    spec = ready.engine.specs[ready.container(session)[1]]
    part = NODE_MIB // NODE_GPUS // 2
    assert (session["memory_mib"], spec.memory_mib) == (part, part), "what is counted is what the container gets"


async def test_cores_without_a_gpu_have_their_part_too(ready: Cluster) -> None:
    session = await run(ready, gpu_milli=0, cpu_milli=2000)
    assert session["memory_mib"] == 2 * NODE_MIB // NODE_CORES


@pytest.mark.parametrize("zero", [{"memory_mib": 0}, {"preset": "no-memory"}])
async def test_nothing_is_without_a_limit(ready: Cluster, zero: dict[str, Any]) -> None:
    await ok(ready.admin.post(f"{V1}/presets", json={"name": "no-memory", "gpu_milli": 1000}))
    assert (await ready.submit("demo", 1000, **zero))["memory_mib"] == NODE_MIB // NODE_GPUS


async def test_what_is_said_counts_and_so_does_what_a_preset_says(ready: Cluster) -> None:
    assert (await ready.submit("own", 1000, memory_mib=1024))["memory_mib"] == 1024
    assert (await ready.submit("preset", 1000, preset="small"))["memory_mib"] == 4096


async def test_the_scheduler_counts_it(ready: Cluster) -> None:
    await run(ready, "large", gpu_milli=0, cpu_milli=1000, memory_mib=NODE_MIB - 1024)
    await ready.submit("demo", 1000)
    await ready.settle()
    waiting = await ready.session("demo")
    assert waiting["state"] == "PENDING"
    assert "which has 1024 of 8192 MiB of memory free" in waiting["reason"]


async def test_of_several_nodes_the_one_with_the_least_counts_that_could_run_it(ready: Cluster) -> None:
    await ready.add_node("crowded", gpus=16)
    await ready.add_node("cpu1", gpus=0)
    assert (await ready.submit("anywhere", 1000))["memory_mib"] == NODE_MIB // 16
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "roomy", "nodes": ["worker1"], "open": True}))
    assert (await ready.submit("roomy", 1000, group="roomy"))["memory_mib"] == NODE_MIB // NODE_GPUS


async def test_several_gpus_have_as_much_as_all_of_them(ready: Cluster) -> None:
    assert (await ready.submit("demo", NODE_GPUS * 1000))["memory_mib"] == NODE_MIB


async def test_a_small_share_has_enough_to_start(ready: Cluster) -> None:
    assert (await ready.submit("demo", 0, cpu_milli=10))["memory_mib"] == 256


async def test_a_site_says_how_much_it_is(database_url: str) -> None:
    said = {"memory_per_gpu_mib": 2000, "memory_per_core_mib": 1000}
    async with running_cluster(database_url, disk_per_gpu_mib=50_000, disk_per_core_mib=20_000, **said) as cluster:
        await cluster.add_node()
        await cluster.add_image()
        await cluster.add_project("team-a", 4000)
        with_gpu = await cluster.submit("pictures", 1500)
        without = await cluster.submit("numbers", 0, cpu_milli=2000)
    assert (with_gpu["memory_mib"], with_gpu["disk_mib"]) == (3000, 75_000)
    assert (without["memory_mib"], without["disk_mib"]) == (2000, 40_000)


async def test_a_policy_caps_what_nobody_has_asked_for(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/user-policies", json={"name": "students", "max_memory_mib": 6144}))
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/users/alice", json={"policy": "students"}))
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        pair = await ok(alice.post(f"{V1}/sessions", json=body("pair", gpu_milli=1000, replicas=2)))
        assert pair["memory_mib"] == 3072, "both containers together have what the policy allows"
        error = await refused(alice.post(f"{V1}/sessions", json=body("more", gpu_milli=1000)), 409)
        assert error["where"] == "memory_mib"


async def test_the_disk_of_a_session_goes_by_its_share(ready: Cluster) -> None:
    session = await run(ready, "half", gpu_milli=500)
    assert session["disk_mib"] == ready.settings.disk_per_gpu_mib // 2
    assert ready.engine.specs[ready.container(session)[1]].disk_mib == session["disk_mib"]
    assert (await ready.submit("numbers", 0, cpu_milli=4000))["disk_mib"] == 4 * ready.settings.disk_per_core_mib
    assert (await ready.submit("small", 0, cpu_milli=10))["disk_mib"] == 1024
    assert (await ready.submit("own", 1000, disk_mib=2048))["disk_mib"] == 2048
    assert (await ready.session("own"))["disk_mib"] == 2048


async def test_shared_memory_is_memory(ready: Cluster) -> None:
    asked = body("demo", gpu_milli=0, cpu_milli=1000, memory_mib=1024, shm_mib=1025)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=asked), 422)
    assert error["where"] == "shm_mib"
    assert error["reason"] == "1025 MiB of shared memory are part of the memory, which is 1024 MiB"
    await ok(ready.admin.post(f"{V1}/sessions", json={**asked, "shm_mib": 1024}))
    tiny = await ready.submit("tiny", 0, cpu_milli=1000, memory_mib=32)
    assert tiny["shm_mib"] == 32 < DEFAULT_SHM_MIB


async def test_what_was_not_asked_for_is_not_called_too_much(ready: Cluster) -> None:
    asked = body("numbers", gpu_milli=0, cpu_milli=9000)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=asked), 422)
    assert (error["where"], error["reason"]) == (
        "cpu_milli",
        "one container asks for 9 CPUs and the largest has 8 CPUs",
    )
    assert error["hint"] == "ask for less"
