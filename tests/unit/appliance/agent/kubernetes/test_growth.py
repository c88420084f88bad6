"""Pools that grow: what they could become counts, and who waits for a machine of theirs has not failed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from appliance.agent.kubernetes import pod_supervisor as module
from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.pod_supervisor import PodSupervisor
from common.errors import ConflictError
from common.protocol import ContainerStatus
from common.settings.kubernetes import Pool
from tests.fakes.kubernetes import FakeKubernetes
from tests.unit.appliance.agent.kubernetes.conftest import POD_SETTINGS, make, make_cluster, until

pytestmark = pytest.mark.anyio
LABELS = {"pool": "a100"}
POOL = Pool(name="a100", machines=LABELS, most=3, cpu_milli=4000, memory_mib=16384, gpus=2, gpu_model="A100")
SETTINGS = dataclasses.replace(POD_SETTINGS, pools=[POOL], grow_s=60)
POD = "penstock-c1"


@pytest.fixture
def fake(fake: FakeKubernetes) -> FakeKubernetes:
    """Only one machine, of a pool that may have three."""
    for name in ("left", "right"):
        fake.remove_node(name)
    grow(fake, "first")
    return fake


@pytest.fixture
async def pool(client: Client, fake: FakeKubernetes) -> AsyncIterator[PodSupervisor]:
    cluster = make_cluster(client, pod_settings=SETTINGS)
    await cluster.rebuild()
    task = asyncio.create_task(cluster.watch())
    yield cluster
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def grow(fake: FakeKubernetes, name: str) -> None:
    fake.add_node(name, cpu="4", memory="16Gi", gpus=2, labels=LABELS)


def places(cluster: PodSupervisor) -> list[str]:
    return [gpu.uuid for gpu in cluster.node_info().gpus]


async def test_what_a_pool_could_become_counts(pool: PodSupervisor, fake: FakeKubernetes) -> None:
    slots = [f"a100:{slot}/{gpu}" for slot in range(3) for gpu in range(2)]
    assert places(pool) == slots
    assert (pool.node_info().cpu_milli, pool.node_info().memory_mib) == (12000, 49152)
    grow(fake, "second")
    fake.add_pod("render", gpus=1)
    await until(lambda: places(pool) == [place for place in slots if place != "a100:0/1"])


async def test_a_pod_that_waits_for_a_machine_is_under_way(pool: PodSupervisor, fake: FakeKubernetes) -> None:
    await pool.launch(make("a100:0/0", "a100:0/1"))
    state = await pool.launch(make("a100:1/0", id="c2"))
    assert (state.status, state.lost) == (ContainerStatus.PULLING, False)
    assert state.warning == "it waits until the cluster's pool a100 has another machine"
    await until(lambda: {state.id for state in pool.states()} == {"c1", "c2"})
    grow(fake, "second")
    await until(lambda: [state.status for state in pool.states()] == [ContainerStatus.RUNNING] * 2)
    assert fake.pods()["penstock-c2"]["spec"]["nodeName"] == "second"
    assert pool.states()[1].warning == ""
    assert len(places(pool)) == 6, "what it holds is where it was"


async def test_the_cluster_may_give_any_machine_of_the_pool(pool: PodSupervisor, fake: FakeKubernetes) -> None:
    await pool.launch(make("a100:2/1"))
    assert fake.pods()[POD]["spec"]["nodeName"] == "first"
    assert fake.pods()[POD]["spec"]["nodeSelector"] == LABELS


async def test_a_pool_that_does_not_grow_in_time_loses_the_pod(
    client: Client, pool: PodSupervisor, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GROWTH_S", 0.05)
    hasty = make_cluster(client, pod_settings=dataclasses.replace(SETTINGS, grow_s=0.5))
    await hasty.rebuild()
    task = asyncio.create_task(hasty.watch())
    fake.add_pod("render", gpus=2)
    await hasty.launch(make("a100:1/0"))
    await until(lambda: [state.lost for state in hasty.states()] == [True])
    assert "got no machine for it within 0.5 s" in hasty.states()[0].error
    await hasty.remove("c1", 0)
    assert (hasty.states(), fake.pods()) == ([], {})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_restart_goes_on_waiting(client: Client, pool: PodSupervisor, fake: FakeKubernetes) -> None:
    fake.add_pod("render", gpus=2)
    await pool.launch(make("a100:1/0"))
    after = make_cluster(client, pod_settings=SETTINGS)
    await after.rebuild()
    assert [state.status for state in after.states()] == [ContainerStatus.PULLING]
    assert POD in fake.pods()


async def test_a_pool_that_has_all_its_machines_is_waited_for_no_longer(
    pool: PodSupervisor, fake: FakeKubernetes
) -> None:
    for name in ("second", "third"):
        grow(fake, name)
    await until(lambda: pool.node_info().os.startswith("3 machines"))
    fake.schedules = False
    with pytest.raises(ConflictError, match="has said nothing"):
        await pool.launch(make("a100:1/0"))
    assert fake.pods() == {}
