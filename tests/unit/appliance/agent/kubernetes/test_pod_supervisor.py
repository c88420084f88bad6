"""A cluster in the place of Docker."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from appliance.agent.kubernetes import pod_supervisor as module
from appliance.agent.kubernetes import pods
from appliance.agent.kubernetes.client import Client, ClusterAwayError
from appliance.agent.kubernetes.pod_supervisor import PodSupervisor
from common.errors import ConflictError, InputError, NotFoundError, UnavailableError
from common.gpu.share import GpuShare
from common.protocol import ContainerState, ContainerStatus
from tests.fakes.kubernetes import FakeKubernetes
from tests.unit.appliance.agent.kubernetes.conftest import IMAGE, POD_SETTINGS, Gate, make, make_cluster, until

pytestmark = pytest.mark.anyio
POD = "penstock-c1"


def status(cluster: PodSupervisor, identity: str = "c1") -> ContainerStatus | None:
    return next((state.status for state in cluster.states() if state.id == identity), None)


async def until_status(cluster: PodSupervisor, wanted: ContainerStatus | None) -> None:
    await until(lambda: status(cluster) is wanted)


async def text(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def test_it_tells_what_the_cluster_has(cluster: PodSupervisor) -> None:
    has = cluster.node_info()
    assert (has.cpu_milli, has.memory_mib, len(has.gpus), has.fractions) == (8000, 32768, 4, False)
    assert (has.engine_version, has.os) == ("Kubernetes v1.20.2", "2 machines of Debian GNU/Linux 12")


async def test_a_session_runs_to_its_end(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    launched = await cluster.launch(make("left/0", "left/1"))
    assert launched.session_id == "s1"
    assert fake.pods()[POD]["spec"]["nodeName"] == "left"
    await until_status(cluster, ContainerStatus.RUNNING)
    fake.finish(POD, 3)
    await until_status(cluster, ContainerStatus.EXITED)
    assert cluster.states()[0].exit_code == 3
    await cluster.remove("c1", 0)
    assert fake.pods() == {}
    assert cluster.states() == []


async def test_a_launch_may_come_twice(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    states = await asyncio.gather(*(cluster.launch(make("left/0")) for _ in range(3)))
    assert {state.id for state in states} == {"c1"}
    assert len(fake.pods()) == 1
    with pytest.raises(ConflictError, match="from another specification"):
        await cluster.launch(make("left/0", image=f"{IMAGE}.1"))


async def test_a_launch_whose_answer_was_lost_is_found(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    """Another agent, which was not told of the pod yet, asks for it once more."""
    blind = make_cluster(client)
    await blind.rebuild()
    await cluster.launch(make("left/0"))
    assert (await blind.launch(make("left/0"))).id == "c1"
    assert len(fake.pods()) == 1


async def test_what_a_machine_never_has_is_refused_for_ever(cluster: PodSupervisor) -> None:
    with pytest.raises(InputError, match=r"asks for 0 GPUs, 6 CPUs .* its machines have at most 2 GPUs, 4 CPUs"):
        await cluster.launch(make(cpu_milli=6000))
    with pytest.raises(InputError, match="asks for 3 GPUs"):
        await cluster.launch(make("left/0", "left/1", "right/0"))


async def test_a_container_has_the_gpus_of_one_machine(cluster: PodSupervisor) -> None:
    with pytest.raises(ConflictError, match="its 2 GPUs lie on 2 machines of the cluster"):
        await cluster.launch(make("left/0", "right/0"))


async def test_a_gpu_is_given_once(cluster: PodSupervisor) -> None:
    await cluster.launch(make("left/0"))
    with pytest.raises(ConflictError, match="GPU left/0 is in use"):
        await cluster.launch(make("left/0", id="c2"))
    with pytest.raises(InputError, match="no GPU right/7"):
        await cluster.launch(make("right/7", id="c2"))


async def test_a_pod_that_finds_no_machine_is_taken_back(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    """The node was emptied of its GPU by somebody of whom the watch has not told."""
    fake.schedules = False
    with pytest.raises(ConflictError, match=r"its scheduler has said nothing for 0.3 s"):
        await cluster.launch(make("left/0"))
    assert fake.pods() == {}
    assert cluster.states() == []


async def test_the_reason_of_the_clusters_scheduler_is_told(client: Client, fake: FakeKubernetes) -> None:
    cluster = make_cluster(client, schedule_s=0.1)
    await cluster.rebuild()
    for name in ("left", "right"):
        fake.change_node(name, lambda node: node["spec"].update(unschedulable=True))
    with pytest.raises(ConflictError, match="0/2 nodes are available"):
        await cluster.launch(make("left/0"))
    assert fake.pods() == {}


async def test_a_pod_that_is_still_without_a_machine_is_no_container_yet(
    cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    """Else the control API would take it for begun, and not ask for it again when it is taken back."""
    fake.schedules = False
    launch = asyncio.create_task(cluster.launch(make("left/0")))
    await until(fake.pods)
    assert cluster.states() == []
    fake.schedules = True
    fake.add_node("other")
    assert (await launch).id == "c1"


async def test_what_an_agent_left_without_a_machine_when_it_ended_is_taken_back(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    await cluster.launch(make("left/0"))
    fake.schedules = False
    await client.create(client.pods, pods.manifest(make("left/1", id="c2"), POD_SETTINGS, "left"))
    after = make_cluster(client)
    await after.rebuild()
    assert [state.id for state in after.states()] == ["c1"]
    assert list(fake.pods()) == ["penstock-c1"]


async def test_one_that_cannot_be_taken_back_keeps_no_agent_from_coming_up(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    await cluster.launch(make("left/0"))
    fake.schedules = False
    await client.create(client.pods, pods.manifest(make("left/1", id="c2"), POD_SETTINGS, "left"))
    fake.denied.add("delete pods")
    after = make_cluster(client)
    await after.rebuild()
    assert [state.id for state in after.states()] == ["c1"]


async def test_what_cannot_be_summed_up_once_is_summed_up_the_next_time(
    cluster: PodSupervisor, fake: FakeKubernetes, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(gate, "open", None)
        await cluster.launch(make("left/0", ports=[80]))
        await asyncio.sleep(0.5)
    fake.add_node("middle", gpus=1)
    await until(lambda: len(cluster.node_info().gpus) == 5)
    assert cluster.states()[0].ports == {80: 50080}


def odd_label(pod: dict[str, Any]) -> None:
    del pod["metadata"]["labels"]["io.penstock.session"]


def odd_ports(pod: dict[str, Any]) -> None:
    pod["metadata"]["annotations"]["io.penstock.ports"] = "[0.5]"


def odd_gpus(pod: dict[str, Any]) -> None:
    pod["metadata"]["annotations"]["io.penstock.gpus"] = "x"


def no_gpus(pod: dict[str, Any]) -> None:
    del pod["metadata"]["annotations"]["io.penstock.gpus"]


@pytest.mark.parametrize("odd", [odd_label, odd_ports, odd_gpus, no_gpus])
async def test_one_pod_that_cannot_be_read_keeps_nothing_from_being_told(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes, odd: Callable[[dict[str, Any]], None]
) -> None:
    """Not now, nor after a restart; it goes on with a warning, and its GPU is nobody else's."""
    manifest = pods.manifest(make("left/1", id="c2", ports=[80]), POD_SETTINGS, "left")
    odd(manifest)
    await client.create(client.pods, manifest)
    await cluster.launch(make("left/0", ports=[80]))
    await until_status(cluster, ContainerStatus.RUNNING)
    fake.finish(POD)
    await until_status(cluster, ContainerStatus.EXITED)
    after = make_cluster(client)
    await after.rebuild()
    for told in (cluster, after):
        states = {state.id: state for state in told.states()}
        assert states.keys() == {"c1", "c2"}
        assert states["c2"].status is ContainerStatus.RUNNING
        assert "its pod cannot be read" in states["c2"].warning
        assert len([gpu for gpu in told.node_info().gpus if gpu.uuid.startswith("left/")]) == (
            2 if odd in (odd_label, odd_ports) else 1
        )
        with pytest.raises((ConflictError, InputError)):
            await told.launch(make("left/1", id="c3"))


async def test_ports_of_one_pod_that_cannot_be_offered_keep_no_other_closed(
    cluster: PodSupervisor, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = gate.open

    async def open_(identity: str, address: str, ports: Sequence[int]) -> dict[int, int]:
        if identity == "c1":
            raise OSError("what nobody expected")
        return await opened(identity, address, ports)

    monkeypatch.setattr(gate, "open", open_)
    for identity, place in (("c1", "left/0"), ("c2", "left/1")):
        await cluster.launch(make(place, id=identity, ports=[80]))
    await until(lambda: [state.ports for state in cluster.states()] == [{}, {80: 50080}])
    assert "what nobody expected" in cluster.states()[0].error


async def test_the_quota_of_the_namespace_may_pass(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    fake.most_pods = 0
    with pytest.raises(ConflictError, match="exceeded quota"):
        await cluster.launch(make("left/0"))


async def test_a_role_that_lacks_a_right_is_the_administrators(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    fake.denied.add("create pods")
    with pytest.raises(UnavailableError, match='cannot create resource "pods"'):
        await cluster.launch(make("left/0"))


async def test_pods_are_known_after_a_restart(client: Client, cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    before = await cluster.launch(make("left/1"))
    after = make_cluster(client)
    await after.rebuild()
    [state] = after.states()
    assert state.model_copy(update={"status": before.status, "started_at": before.started_at}) == before
    assert "left/1" in {gpu.uuid for gpu in after.node_info().gpus}
    with pytest.raises(ConflictError, match="in use"):
        await after.launch(make("left/1", id="c2"))


async def test_other_agents_have_pods_of_their_own(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    """To each the others' pods are somebody else's: they take from what it has."""
    await cluster.launch(make("left/0"))
    other = make_cluster(client, pod_settings=dataclasses.replace(POD_SETTINGS, node="k8s2"))
    await other.rebuild()
    assert other.states() == []
    assert len(other.node_info().gpus) == 3


async def test_who_labels_a_pod_like_ours_elsewhere_has_not_made_it_ours(client: Client, fake: FakeKubernetes) -> None:
    fake.put_pod("other", pods.manifest(make("left/0"), POD_SETTINGS, "left"))
    fake.add_pod("bare", namespace="penstock", labels={"io.penstock.node": "k8s1", "io.penstock.id": "c2"})
    cluster = make_cluster(client)
    await cluster.rebuild()
    assert cluster.states() == []
    assert len(cluster.node_info().gpus) == 3


async def test_what_comes_and_goes_changes_what_the_node_has(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    cluster.changed.clear()
    fake.add_pod("render", cpu="1", gpus=2)
    await asyncio.wait_for(cluster.changed.wait(), 60)
    assert (cluster.node_info().cpu_milli, len(cluster.node_info().gpus)) == (7000, 2)
    fake.delete("render", namespace="other")
    await until(lambda: len(cluster.node_info().gpus) == 4)


async def test_a_pod_that_somebody_deleted_is_no_longer_told(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    await cluster.launch(make("left/0"))
    await until_status(cluster, ContainerStatus.RUNNING)
    fake.delete(POD)
    await until_status(cluster, None)


async def test_an_image_that_cannot_be_pulled_fails_the_container(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    fake.missing.add(IMAGE)
    await cluster.launch(make("left/0"))
    await until_status(cluster, ContainerStatus.FAILED)
    assert cluster.states()[0].error == "its image cannot be pulled"


async def test_a_pull_that_takes_long_is_told(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    fake.pulling.add(IMAGE)
    await cluster.launch(make("left/0"))
    await until_status(cluster, ContainerStatus.PULLING)
    fake.pulled(IMAGE)
    await until_status(cluster, ContainerStatus.RUNNING)


async def test_a_removal_waits_until_the_pod_is_gone(
    cluster: PodSupervisor, fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REMOVAL_S", 0.1)
    fake.deaf.add("left")
    await cluster.launch(make("left/0"))
    with pytest.raises(UnavailableError, match="does not finish deleting penstock-c1 on left"):
        await cluster.remove("c1", 1)
    assert "left/0" in {share.uuid for state in cluster.states() for share in state.gpus}
    fake.deaf.clear()
    await cluster.remove("c1", 1)
    assert fake.pods() == {}
    await cluster.remove("c1", 1)


async def test_what_webhooks_put_beside_a_session_is_not_the_sessions(
    cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    """It takes from what there is, and keeps no session from coming to its end."""
    proxy = {"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": "500m"}}}
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    fake.webhooks.append(lambda pod: pod["spec"]["containers"].insert(0, proxy | {"securityContext": rights}))
    await cluster.launch(make("left/0", cpu_milli=1000))
    await until_status(cluster, ContainerStatus.RUNNING)
    assert cluster.node_info().cpu_milli == 7500
    fake.finish(POD, 3)
    await until_status(cluster, ContainerStatus.EXITED)
    assert fake.pods()[POD]["status"]["phase"] == "Running", "the proxy goes on"
    await cluster.remove("c1", 0)
    assert fake.pods() == {}


async def test_a_pod_that_a_webhook_made_another_one_is_refused(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    """Nobody would know it again."""
    fake.webhooks.append(lambda pod: pod["metadata"]["labels"].pop("io.penstock.id", None))
    with pytest.raises(InputError, match="the cluster has changed what Penstock wrote"):
        await cluster.launch(make("left/0"))
    assert fake.pods() == {}


async def test_logs_are_the_clusters(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    fake.pulling.add(IMAGE)
    await cluster.launch(make("left/0"))
    with pytest.raises(NotFoundError, match="waiting to start"):
        await cluster.logs("c1", follow=False, tail=None)
    fake.pulled(IMAGE)
    fake.written[POD] = b"one\ntwo\nthree\n"
    assert await text(await cluster.logs("c1", follow=False, tail=None)) == b"one\ntwo\nthree\n"
    assert await text(await cluster.logs("c1", follow=True, tail=2)) == b"two\nthree\n"
    with pytest.raises(NotFoundError, match="not found"):
        await cluster.logs("c9", follow=False, tail=None)


async def test_shares_do_not_change(cluster: PodSupervisor) -> None:
    state = await cluster.launch(make("left/0"))
    await until_status(cluster, ContainerStatus.RUNNING)
    same: ContainerState = await cluster.resize("c1", state.gpus)
    assert same.gpus == state.gpus
    with pytest.raises(InputError, match="shares on a cluster of it do not change"):
        await cluster.resize("c1", [GpuShare(uuid="left/0", index=0, milli=500)])
    with pytest.raises(NotFoundError):
        await cluster.resize("c9", [])


async def test_a_cluster_that_is_away_keeps_what_was_known(cluster: PodSupervisor, fake: FakeKubernetes) -> None:
    await cluster.launch(make("left/0"))
    await until_status(cluster, ContainerStatus.RUNNING)
    fake.away = True
    with pytest.raises(ClusterAwayError):
        await cluster.launch(make("left/1", id="c2"))
    assert status(cluster) is ContainerStatus.RUNNING
    assert len(cluster.node_info().gpus) == 4


async def test_ports_are_open_while_the_pod_runs(cluster: PodSupervisor, fake: FakeKubernetes, gate: Gate) -> None:
    await cluster.launch(make("left/0", ports=[8888]))
    await until_status(cluster, ContainerStatus.RUNNING)
    assert cluster.states()[0].ports == {8888: 58888}
    assert gate.open_for == {"c1": "10.1.0.1"}
    fake.finish(POD)
    await until_status(cluster, ContainerStatus.EXITED)
    assert gate.open_for == {}


async def test_ports_that_cannot_be_opened_are_tried_again(
    cluster: PodSupervisor, fake: FakeKubernetes, gate: Gate
) -> None:
    gate.shut = True
    await cluster.launch(make("left/0", ports=[8888]))
    await until_status(cluster, ContainerStatus.RUNNING)
    assert "cannot be offered" in cluster.states()[0].error
    gate.shut = False
    fake.add_node("third")
    await until(lambda: cluster.states()[0].ports)
    assert cluster.states()[0].error == ""


async def test_a_part_of_a_cluster_may_be_a_node(client: Client, fake: FakeKubernetes) -> None:
    """A large cluster is several nodes, each with machines of its own."""
    fake.add_node("mine", cpu="4", labels={"pool": "a"})
    cluster = make_cluster(client, pod_settings=dataclasses.replace(POD_SETTINGS, machines={"pool": "a"}))
    await cluster.rebuild()
    assert (cluster.node_info().cpu_milli, cluster.node_info().gpus) == (4000, [])
    await cluster.launch(make(cpu_milli=1000))
    assert fake.pods()[POD]["spec"]["nodeName"] == "mine"
