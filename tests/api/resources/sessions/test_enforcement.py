"""How shares are held, as nodes report it and sessions ask for it; slices of GPUs among GPUs; memory of a share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from api.resources.nodes import fleet
from common.gpu.kinds import Enforcement
from common.protocol import HEARTBEAT_PATH, ContainerState, GpuDevice, Heartbeat, NodeInfo
from tests.api.cluster import V1, Cluster, ok, refused
from tests.fakes.heartbeats import node_info

pytestmark = pytest.mark.anyio

SLICES = (("1g.10gb", 142, 9728), ("2g.20gb", 285, 19968), ("4g.40gb", 571, 40192))
PENDING = "shim, when the last container under none has ended"


def gpu(index: int, held: Enforcement = Enforcement.SHIM, memory_mib: int = 32510) -> GpuDevice:
    return GpuDevice(index=index, uuid=f"GPU-{index}", model="Tesla V100", memory_mib=memory_mib, enforcement=held)


def slices(start: int = 1) -> list[GpuDevice]:
    """The slices that an administrator has cut one A100 into."""
    return [
        GpuDevice(
            index=start + at,
            uuid=f"MIG-{profile}",
            model="A100",
            memory_mib=memory_mib,
            enforcement=Enforcement.MIG,
            parent="GPU-A100",
            profile=profile,
            capacity_milli=milli,
        )
        for at, (profile, milli, memory_mib) in enumerate(SLICES)
    ]


async def report(
    cluster: Cluster, gpus: Sequence[GpuDevice], containers: Sequence[ContainerState] | None = None, **fields: Any
) -> None:
    """Report as the agent of worker1 with these GPUs."""
    running = [state for (node, _), state in cluster.engine.containers.items() if node == "worker1"]
    described = node_info("worker1", 0).model_dump() | {"gpus": list(gpus), **fields}
    beat = Heartbeat(
        name="worker1",
        address="192.0.2.10",
        port=6001,
        boot="boot-1",
        sequence=next(cluster.sequences),
        node_info=NodeInfo.model_validate(described),
        containers=list(running if containers is None else containers),
    )
    async with cluster.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}) as agent:
        answer = await agent.post(HEARTBEAT_PATH, json=beat.model_dump(mode="json"))
    assert answer.status_code == 200, answer.text
    await cluster.settle()


async def prepare(cluster: Cluster, *gpus: GpuDevice, quota: int = 4000) -> None:
    await report(cluster, gpus, enforcement=Enforcement.SHIM)
    await cluster.add_image()
    await cluster.add_project("team-a", quota)


async def submitted(cluster: Cluster, name: str, gpu_milli: int, **more: Any) -> dict[str, Any]:
    await cluster.submit(name, gpu_milli, **more)
    await cluster.settle()
    return await cluster.session(name)


async def test_a_node_shows_how_shares_are_held(cluster: Cluster) -> None:
    await report(cluster, [gpu(0), *slices()], enforcement=Enforcement.SHIM, enforcement_pending=PENDING)
    node = await ok(cluster.admin.get(f"{V1}/nodes/worker1"))
    assert (node["enforcement"], node["enforcement_pending"]) == ("shim", PENDING)
    shown = ("enforcement", "accelerator", "parent", "profile", "capacity_milli")
    assert [[device[field] for field in shown] for device in node["gpus"]] == [
        ["shim", "nvidia", "", "", 1000],
        ["mig", "nvidia", "GPU-A100", "1g.10gb", 142],
        ["mig", "nvidia", "GPU-A100", "2g.20gb", 285],
        ["mig", "nvidia", "GPU-A100", "4g.40gb", 571],
    ]
    assert node["gpu_milli"] == 1998
    await report(cluster, [gpu(0, Enforcement.DRIVER)], enforcement=Enforcement.DRIVER)
    node = await ok(cluster.admin.get(f"{V1}/nodes/worker1"))
    assert (node["enforcement"], node["enforcement_pending"]) == ("driver", "")
    assert [device["enforcement"] for device in node["gpus"]] == ["driver"]


@pytest.mark.parametrize(
    ("memory_mib", "milli", "expected"), [(32510, 500, 16255), (8192, 250, 2048), (16384, 1000, 16384)]
)
async def test_a_session_shows_the_memory_of_its_share(
    cluster: Cluster, memory_mib: int, milli: int, expected: int
) -> None:
    await prepare(cluster, gpu(0, memory_mib=memory_mib))
    (part,) = (await submitted(cluster, "a", milli))["gpus"]
    assert (part["memory_mib"], part["model"], part["profile"]) == (expected, "Tesla V100", "")


async def test_two_and_a_half_gpus(cluster: Cluster) -> None:
    await prepare(cluster, *map(gpu, range(3)))
    session = await submitted(cluster, "a", 2500)
    assert sorted((part["milli"], part["memory_mib"]) for part in session["gpus"]) == [
        (500, 16255),
        (1000, 32510),
        (1000, 32510),
    ]


async def test_a_part_goes_to_the_smallest_slice_and_takes_all_of_it(cluster: Cluster) -> None:
    await prepare(cluster, gpu(0), *slices())
    session = await submitted(cluster, "a", 250)
    (part,) = session["gpus"]
    assert (part["uuid"], part["profile"], part["milli"], part["memory_mib"]) == (
        "MIG-2g.20gb",
        "2g.20gb",
        285,
        19968,
    )
    assert (session["gpu_milli"], session["held_milli"]) == (250, 285), "what it asked for, and what it takes"
    assert (await ok(cluster.admin.get(f"{V1}/projects/team-a")))["used_milli"] == 285
    node = await ok(cluster.admin.get(f"{V1}/nodes/worker1"))
    assert node["used_milli"] == 285
    spec = next(iter(cluster.engine.specs.values()))
    assert [(share.uuid, share.milli) for share in spec.gpus] == [("MIG-2g.20gb", 285)]


async def test_what_a_slice_takes_counts_for_a_hard_cap(cluster: Cluster) -> None:
    await prepare(cluster, *slices(), quota=900)
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False}))
    assert (await submitted(cluster, "a", 400))["held_milli"] == 571
    assert (await submitted(cluster, "b", 250))["held_milli"] == 285
    third = await submitted(cluster, "c", 100)
    assert (third["state"], third["cause"]) == ("PENDING", "quota")
    await ok(cluster.admin.delete(f"{V1}/sessions/a", params={"project": "team-a"}))
    await cluster.settle()
    assert (await cluster.session("c"))["held_milli"] == 142


async def test_whole_gpus_never_land_on_slices(cluster: Cluster) -> None:
    await prepare(cluster, *slices())
    body = {"name": "a", "project": "team-a", "image": "python", "gpu_milli": 1000}
    error = await refused(cluster.admin.post(f"{V1}/sessions", json=body), 422)
    assert error["reason"] == "no node that it may use has a GPU as a whole, only slices"
    assert error["hint"] == "ask for a part of a GPU"


@pytest.mark.parametrize("later", [slices(), [gpu(0)]], ids=["as it was", "cut anew since"])
async def test_a_slice_has_no_other_share(cluster: Cluster, later: list[GpuDevice]) -> None:
    await prepare(cluster, *slices())
    session = await submitted(cluster, "a", 250)
    cluster.change_container(session, enforcement=Enforcement.MIG)
    await report(cluster, later)
    query, change = {"project": "team-a"}, {"gpu_milli": 200}
    error = await refused(cluster.admin.patch(f"{V1}/sessions/a", params=query, json=change), 409)
    assert error["reason"] == "session a runs on a slice of a GPU, which is not divided"


RECUT = [part.model_copy(update={"capacity_milli": 333}) for part in slices()]
CHANGES = {
    "the kind": ([gpu(0), gpu(1)], [gpu(0), gpu(1, Enforcement.NONE)]),
    "two kinds": ([gpu(0), gpu(1, Enforcement.NONE)], [gpu(0, Enforcement.NONE), gpu(1)]),
    "what it is a slice of": ([slices()[0].model_copy(update={"parent": ""})], slices()[:1]),
    "how much of a GPU it is": (slices(), [*RECUT[:2], RECUT[2].model_copy(update={"capacity_milli": 332})]),
}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES.keys())
async def test_what_changes_of_a_gpu_is_seen_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, before: list[GpuDevice], after: list[GpuDevice]
) -> None:
    monkeypatch.setattr(fleet, "READ_ANYWAY_S", 10**9)
    seen = fleet.Fleet()
    for gpus in (before, after):
        await report(cluster, gpus, enforcement=Enforcement.SHIM)
        async with cluster.database.reading() as db:
            await seen.refresh(db)
        told = [(state.enforcement, state.capacity_milli, state.slice) for state in seen.nodes[0].gpus]
        assert told == [(item.enforcement, item.capacity_milli, bool(item.parent)) for item in gpus]


async def test_slices_count_for_what_projects_may_claim(cluster: Cluster) -> None:
    await report(cluster, [gpu(0), *slices()])
    body = {"name": "team-b", "quota_milli": 2000, "over_quota": False, "period": {"ends_at": None}}
    error = await refused(cluster.admin.post(f"{V1}/projects", json=body), 409)
    assert error["reason"].endswith("the hard quotas would come to 2 GPUs, and the cluster has 1.998")
    await ok(cluster.admin.post(f"{V1}/projects", json=body | {"quota_milli": 1950}))


async def test_a_kind_that_no_node_has_is_refused_at_once(cluster: Cluster) -> None:
    await prepare(cluster, gpu(0))
    body = {"name": "a", "project": "team-a", "image": "python", "gpu_milli": 500, "enforcement": "driver"}
    error = await refused(cluster.admin.post(f"{V1}/sessions", json=body), 422)
    assert error["reason"] == "no GPU that it may use holds shares by driver or better, the best is shim"
    assert error["hint"] == "ask for shim, or choose another resource group"


async def test_a_session_runs_where_shares_are_held_well_enough_and_waits_for_that(cluster: Cluster) -> None:
    await prepare(cluster, gpu(0, Enforcement.NONE), gpu(1))
    first = await submitted(cluster, "a", 750, enforcement="mps")
    assert (first["enforcement"], first["gpus"][0]["uuid"]) == ("mps", "GPU-1")
    second = await submitted(cluster, "b", 500, enforcement="mps")
    assert second["state"] == "PENDING"
    assert second["reason"] == (
        "no node has 0.5 GPU held by mps or better free; largest free piece is 0.25 GPU on worker1"
    )


async def test_a_batch_and_a_preset_ask_for_a_kind(cluster: Cluster) -> None:
    await prepare(cluster, gpu(0), gpu(1, Enforcement.NONE))
    body = {"name": "held", "gpu_milli": 500, "enforcement": "shim"}
    assert (await ok(cluster.admin.post(f"{V1}/presets", json=body)))["enforcement"] == "shim"
    batch = {"name": "a", "project": "team-a", "image": "python", "preset": "held", "count": 2}
    made = await ok(cluster.admin.post(f"{V1}/sessions/batch", json=batch))
    assert [session["enforcement"] for session in made] == ["shim", "shim"]
    anywhere = {"name": "b", "project": "team-a", "image": "python", "preset": "held", "enforcement": "none"}
    assert (await ok(cluster.admin.post(f"{V1}/sessions", json=anywhere)))["enforcement"] == "none"
    await cluster.settle()
    assert {(await cluster.session(f"a-{n}"))["gpus"][0]["uuid"] for n in (1, 2)} == {"GPU-0"}


async def test_a_container_shows_how_it_is_held_and_what_is_wrong_as_long_as_it_is(cluster: Cluster) -> None:
    await prepare(cluster, gpu(0))
    session = await submitted(cluster, "a", 500)
    warning = "uses 17000 MiB of GPU-0, and its share has 16255 MiB"
    cluster.change_container(session, enforcement=Enforcement.SHIM, warning=warning)
    await report(cluster, [gpu(0)], enforcement=Enforcement.SHIM)
    (container,) = (await cluster.session("a"))["containers"]
    assert (container["enforcement"], container["warning"]) == ("shim", warning)
    cluster.change_container(session, warning="")
    await report(cluster, [gpu(0)], enforcement=Enforcement.SHIM)
    (container,) = (await cluster.session("a"))["containers"]
    assert container["warning"] == ""
