"""What one container gets: presets (L6), CPU-only work (C7), large shares (C9), and several containers (L9)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body, run

pytestmark = pytest.mark.anyio


def sizes(session: dict[str, Any]) -> tuple[int, int, int, int]:
    return session["cpu_milli"], session["memory_mib"], session["shm_mib"], session["gpu_milli"]


async def test_the_presets_of_the_start(cluster: Cluster) -> None:
    presets = await ok(cluster.admin.get(f"{V1}/presets"))
    assert {preset["name"]: sizes(preset) for preset in presets} == {
        "small": (1000, 4 * 1024, 64, 0),
        "medium": (2000, 6 * 1024, 1024, 0),
        "medium-gpu": (2000, 6 * 1024, 1024, 1000),
        "large": (4000, 8 * 1024, 1024, 0),
        "large-gpu": (4000, 8 * 1024, 1024, 2000),
        "research-gpu": (8000, 48 * 1024, 2 * 1024, 4500),
    }


async def test_administrators_make_and_change_presets(cluster: Cluster) -> None:
    request = {"name": "tiny", "cpu_milli": 500, "memory_mib": 512}
    await ok(cluster.admin.post(f"{V1}/presets", json=request))
    await refused(cluster.admin.post(f"{V1}/presets", json=request), 409)
    await ok(cluster.admin.patch(f"{V1}/presets/tiny", json={"memory_mib": 1024}))
    assert sizes(await ok(cluster.admin.get(f"{V1}/presets/tiny"))) == (500, 1024, 64, 0)
    error = await refused(cluster.admin.patch(f"{V1}/presets/tiny", json={"cpu_milli": 0}), 422)
    assert error["where"] == "cpu_milli"
    async with await cluster.user("alice") as alice:
        await ok(alice.get(f"{V1}/presets"))
        await refused(alice.delete(f"{V1}/presets/tiny"), 403)
    await ok(cluster.admin.delete(f"{V1}/presets/tiny"))
    await refused(cluster.admin.get(f"{V1}/presets/tiny"), 404)


async def test_a_preset_fills_in_what_is_left_out(ready: Cluster) -> None:
    request = body(preset="medium-gpu", memory_mib=2048)
    del request["gpu_milli"]
    session = await ok(ready.admin.post(f"{V1}/sessions", json=request))
    assert session["preset"] == "medium-gpu"
    assert sizes(session) == (2000, 2048, 1024, 1000)


async def test_the_container_gets_its_size(ready: Cluster) -> None:
    session = await run(ready, preset="small")
    spec = ready.engine.specs[ready.container(session)[1]]
    assert (spec.cpu_milli, spec.memory_mib, spec.shm_mib) == (1000, 4096, 64)


@pytest.mark.parametrize(("memory_mib", "shm_mib"), [(4096, 2048), (0, 4096), (100, 64), (32, 32)])
async def test_a_large_shm_is_half_of_the_memory(ready: Cluster, memory_mib: int, shm_mib: int) -> None:
    session = await ready.submit("demo", 1000, memory_mib=memory_mib, large_shm=True)
    assert session["shm_mib"] == shm_mib


async def test_cpu_only_work_goes_to_the_cpu_node(ready: Cluster) -> None:
    await ready.add_node("cpu1", gpus=0)
    assert (await run(ready, "numbers", gpu_milli=0, cpu_milli=1000))["node"] == "cpu1"
    assert (await run(ready, "pictures"))["node"] == "worker1"


async def test_sixteen_gpus_in_one_container(cluster: Cluster) -> None:
    await cluster.add_node(gpus=16)
    await cluster.add_image()
    await cluster.add_project("team-a", 16_000)
    session = await run(cluster, gpu_milli=16_000)
    assert len(session["gpus"]) == 16


async def test_several_containers_start_together_or_not_at_all(ready: Cluster) -> None:
    session = await run(ready, "gang", replicas=4, gpu_milli=1000)
    assert [(each["rank"], each["status"]) for each in session["containers"]] == [
        (rank, "running") for rank in range(4)
    ]
    assert len({each["gpus"][0]["uuid"] for each in session["containers"]}) == 4
    await ready.submit("second", replicas=2, gpu_milli=500)
    await ready.settle()
    second = await ready.session("second")
    assert (second["state"], second["containers"]) == ("PENDING", [])


async def test_at_most_twenty_containers(ready: Cluster) -> None:
    session = await run(ready, "gang", replicas=20, gpu_milli=100)
    assert len(session["containers"]) == 20
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body("more", replicas=21)), 422)
    assert error["where"] == "replicas"


async def test_only_models_that_are_asked_for(ready: Cluster) -> None:
    session = await run(ready, gpu_models=["simulated gpu"])
    assert session["gpu_models"] == ["simulated gpu"]
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body("other", gpu_models=["V100"])), 422)
    assert "V100" in error["reason"]
