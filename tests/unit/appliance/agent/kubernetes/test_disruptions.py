"""What a cluster takes away is told as lost; what ends by itself or by its own fault is not."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from appliance.agent.kubernetes import pod_supervisor as module
from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.disruptions import loss_of
from appliance.agent.kubernetes.pod_supervisor import PodSupervisor
from common.protocol import MACHINE_RESTARTED, ContainerState, ContainerStatus
from tests.fakes.kubernetes import FakeKubernetes
from tests.unit.appliance.agent.kubernetes.conftest import make, make_cluster, until

pytestmark = pytest.mark.anyio
POD = "penstock-c1"
SHM = 'Usage of EmptyDir volume "shm" exceeds the limit "64Mi". '


async def running(cluster: PodSupervisor) -> None:
    await cluster.launch(make("left/0"))
    await until(lambda: [state.status for state in cluster.states()] == [ContainerStatus.RUNNING])


async def lost(cluster: PodSupervisor) -> ContainerState:
    await until(lambda: any(state.lost for state in cluster.states()))
    [state] = cluster.states()
    assert state.status is ContainerStatus.FAILED
    return state


def ended(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": POD, **metadata}, "spec": {"nodeName": "left"}, "status": status}


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("Evicted", "The node was low on resource: memory.", True),
        ("Evicted", SHM, False),
        ("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ", False),
        ("NodeLost", "Node left which was running pod c1 is unresponsive", True),
        ("Terminated", "Pod was terminated in response to imminent node shutdown.", True),
        ("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu", True),
        ("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present", True),
        ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", False),
        ("", "", False),
    ],
)
def test_older_clusters_say_it_by_the_reason_alone(reason: str, message: str, expected: bool) -> None:
    found = loss_of(ended({"phase": "Failed", "reason": reason, "message": message}))
    assert found == (f"{reason}: {message}" if expected else "")
    assert loss_of(ended({"phase": "Running", "reason": reason, "message": message})) == ""


@pytest.mark.parametrize(
    ("reason", "of_pod", "expected"),
    [
        ("Unknown", "", MACHINE_RESTARTED),
        ("ContainerStatusUnknown", "", MACHINE_RESTARTED),
        ("Error", "", ""),
        ("OOMKilled", "", ""),
        ("ContainerStatusUnknown", "Evicted", ""),
    ],
)
def test_an_end_that_no_machine_saw_is_that_of_the_machine(reason: str, of_pod: str, expected: str) -> None:
    """So a cluster tells of what ran when a machine lost its power; one that is put away says why."""
    state = {"terminated": {"exitCode": 255, "reason": reason}}
    status = {"phase": "Failed", "reason": of_pod, "containerStatuses": [{"name": "session", "state": state}]}
    assert loss_of(ended(status)) == expected
    assert loss_of(ended({**status, "phase": "Running"})) == ""


@pytest.mark.parametrize(("finished", "expected"), [("2026-01-02T03:04:04Z", ""), ("2026-01-02T03:04:06Z", "drained")])
def test_what_had_ended_before_is_not_lost(finished: str, expected: str) -> None:
    """A program that saves its work and ends well when it is told to go has not come to its end."""
    state = {"terminated": {"exitCode": 0, "finishedAt": finished}}
    condition = {"type": "DisruptionTarget", "status": "True", "message": "drained"}
    status = {
        "phase": "Succeeded",
        "conditions": [condition | {"lastTransitionTime": "2026-01-02T03:04:05Z"}],
        "containerStatuses": [{"name": "session", "state": state}],
    }
    assert loss_of(ended(status, deletionTimestamp="2026-01-02T03:04:05Z")) == expected


async def test_a_pod_that_a_machine_needs_away_is_lost(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    await running(cluster)
    fake.evict(POD)
    assert (await lost(cluster)).error == "The node was low on resource: memory."


async def test_a_pod_that_went_over_its_limit_is_not_lost(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    """It would only do so again."""
    await running(cluster)
    fake.evict(POD, own_fault=SHM)
    await until(lambda: [state.status for state in cluster.states()] == [ContainerStatus.FAILED])
    assert (cluster.states()[0].lost, "exceeds the limit" in cluster.states()[0].error) == (False, True)


async def test_a_drained_machine_loses_its_pods_even_if_they_are_gone_at_once(
    cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    await running(cluster)
    fake.drain("left")
    assert fake.pods() == {}
    state = await lost(cluster)
    assert (state.id, state.error) == ("c1", "Eviction API: evicting")
    assert "left/0" not in {gpu.uuid for gpu in cluster.node_info().gpus}
    await cluster.remove("c1", 0)
    assert cluster.states() == [], "it was told"


async def test_what_vanished_while_the_watch_was_broken_is_lost(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    await running(cluster)
    fake.silence("left")
    await until(lambda: "not ready" in cluster.states()[0].warning)
    fake.delete(POD)
    fake.compact()
    assert (await lost(cluster)).error == "its machine left is not ready"


async def test_a_pod_of_a_silent_machine_is_lost_when_the_cluster_gives_it_up(
    cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    await running(cluster)
    fake.silence("left")
    await until(lambda: cluster.states()[0].warning == "its machine left is not ready")
    fake.after_silence("left", 59)
    await asyncio.sleep(0.3)
    assert cluster.states()[0].status is ContainerStatus.RUNNING, "it may come back"
    fake.after_silence("left", 60)
    await lost(cluster)
    await cluster.remove("c1", 10)
    assert fake.pods() == {}, "nobody is there who would end it in time"
    assert cluster.states() == []


async def test_a_pod_of_a_machine_that_is_taken_away_is_lost(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    await running(cluster)
    fake.remove_node("left")
    fake.collect_pods()
    assert (await lost(cluster)).error == "PodGC: node no longer exists"


async def test_an_older_cluster_only_deletes_pods_of_silent_machines(
    cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    await running(cluster)
    fake.silence("left")
    fake.delete(POD, 30)
    assert (await lost(cluster)).error == "its machine left is not ready"


async def test_whom_we_remove_is_not_lost(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    await running(cluster)
    await cluster.remove("c1", 1)
    await asyncio.sleep(0.4)
    assert cluster.states() == []


async def test_what_somebody_deletes_is_not_lost(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    await running(cluster)
    fake.delete(POD)
    await until(lambda: not cluster.states())


async def test_a_finalizer_of_others_holds_nothing_up(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the removal of a session, whose GPU is free again, nor the start of an agent."""
    monkeypatch.setattr(module, "_REMOVAL_S", 0.1)
    fake.webhooks.append(lambda pod: pod["metadata"].update(finalizers=["audit.corp/kept"]))
    await running(cluster)
    await cluster.remove("c1", 0)
    assert POD in fake.pods(), "somebody holds the object"
    assert cluster.states() == []
    await until(lambda: len(cluster.node_info().gpus) == 4)
    await cluster.launch(make("left/0", id="c2"))
    fake.release(POD)
    await until(lambda: [state.id for state in cluster.states()] == ["c2"])


async def test_an_agent_starts_with_pods_that_never_go(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REMOVAL_S", 600)
    fake.webhooks.append(lambda pod: pod["metadata"].update(finalizers=["audit.corp/kept"]))
    fake.schedules = False

    def made(number: int) -> bool:
        return len(fake.pods()) > number

    for number in range(5):
        launch = asyncio.create_task(cluster.launch(make(id=f"c{number}")))
        await until(partial(made, number))
        launch.cancel()
        await asyncio.gather(launch, return_exceptions=True)
    after = make_cluster(client)
    async with asyncio.timeout(60):
        await after.rebuild()
    assert after.states() == []
    assert all("deletionTimestamp" in pod["metadata"] for pod in fake.pods().values())
