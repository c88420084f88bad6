"""Orphaned containers: those of known sessions are removed, those of unknown sessions are not."""

from __future__ import annotations

import pytest

from api.endpoints.app import set_up
from common.gpu.share import GpuShare
from common.protocol import ContainerState, ContainerStatus
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster
from tests.api.steps import run

pytestmark = pytest.mark.anyio

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def unknown(number: int = 0, session_id: str = UNKNOWN) -> ContainerState:
    return ContainerState(id=f"session-unknown-{number}", session_id=session_id, status=ContainerStatus.RUNNING)


def held(gpus: int) -> list[GpuShare]:
    return [GpuShare(f"GPU-worker1-{index}", index, 1000) for index in range(gpus)]


def removed(cluster: Cluster) -> set[str]:
    return {id_ for call, _, id_ in cluster.engine.calls if call == "terminate"}


async def test_a_container_that_its_session_does_not_want_is_removed(ready: Cluster) -> None:
    session = await run(ready)
    wanted = ready.engine.containers[ready.container(session)]
    copy = wanted.model_copy(update={"id": "session-copy"})
    older = wanted.model_copy(update={"id": f"session-{session['id']}-7-0"})
    await ready.heartbeat(containers=[wanted, copy, older])
    await ready.settle()
    assert removed(ready) == {copy.id, older.id}
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_one_of_an_ended_session_is_removed(ready: Cluster) -> None:
    session = await run(ready)
    left = ready.engine.containers[ready.container(session)]
    await ok(ready.admin.delete(f"{V1}/sessions/demo", params={"project": "team-a"}))
    await ready.settle()
    ready.engine.calls.clear()
    await ready.heartbeat(containers=[left])
    await ready.settle()
    assert removed(ready) == {left.id}


async def test_a_removal_that_failed_is_tried_again_though_nothing_is_new(ready: Cluster) -> None:
    session = await run(ready)
    wanted = ready.engine.containers[ready.container(session)]
    copy = wanted.model_copy(update={"id": "session-copy"})
    for _ in range(3):
        await ready.heartbeat(containers=[wanted, copy])
        await ready.settle()
    assert [id_ for call, _, id_ in ready.engine.calls if call == "terminate"] == [copy.id] * 3


async def test_what_one_holds_of_gpus_is_given_to_nobody_until_it_is_gone(ready: Cluster) -> None:
    """As where Docker cannot end it."""
    session = await run(ready, gpu_milli=1000)
    left = ready.engine.containers[ready.container(session)].model_copy(update={"gpus": held(4)})
    await ok(ready.admin.delete(f"{V1}/sessions/demo", params={"project": "team-a"}))
    await ready.settle()
    await ready.heartbeat(containers=[left])
    await ready.settle()
    await ready.submit("next", 1000)
    for _ in range(2):
        await ready.heartbeat(containers=[left])
        await ready.settle()
        assert (await ready.session("next"))["state"] == "PENDING"
    await ready.heartbeat(containers=[left.model_copy(update={"gpus": held(3)})])
    await ready.settle()
    found = await ready.session("next")
    assert [share["uuid"] for share in found["gpus"]] == ["GPU-worker1-3"]


async def test_one_that_has_ended_holds_no_gpus(ready: Cluster) -> None:
    session = await run(ready)
    left = ready.engine.containers[ready.container(session)]
    copy = left.model_copy(update={"id": "session-copy", "gpus": held(4), "status": ContainerStatus.EXITED})
    await ready.heartbeat(containers=[left, copy])
    await ready.settle()
    await ready.submit("next", 1000)
    await ready.settle()
    assert (await ready.session("next"))["node"] == "worker1"


@pytest.mark.parametrize("session_id", [UNKNOWN, "no-uuid"])
async def test_containers_of_unknown_sessions_run_on_and_their_node_takes_nothing_new(
    ready: Cluster, session_id: str
) -> None:
    """So it is after an old backup was restored."""
    await ready.heartbeat(containers=[unknown(n, session_id) for n in range(5)])
    await ready.settle()
    assert removed(ready) == set()
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert (node["state"], node["unknown_containers"]) == ("ready", 5)
    assert node["message"] == (
        "it runs containers of sessions that the database does not know: "
        "session-unknown-0, session-unknown-1, session-unknown-2 and 2 more"
    )
    await ready.submit("demo")
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "PENDING"


async def test_what_is_wrong_with_one_of_them_is_said_on_the_node(ready: Cluster) -> None:
    odd = unknown().model_copy(update={"warning": "its label io.penstock.gpus cannot be read"})
    await ready.heartbeat(containers=[odd])
    await ready.settle()
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert node["message"].endswith("session-unknown-0 (its label io.penstock.gpus cannot be read)")


async def test_an_administrator_ends_them(ready: Cluster) -> None:
    await ready.heartbeat(containers=[unknown()])
    await ready.settle()
    await ok(ready.admin.delete(f"{V1}/nodes/worker1/unknown-containers"))
    assert removed(ready) == {"session-unknown-0"}
    await ready.heartbeat(containers=[])
    await ready.settle()
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert (node["unknown_containers"], node["message"]) == (0, "")
    await run(ready)


async def test_they_are_ended_by_a_process_that_their_agent_does_not_talk_to(ready: Cluster) -> None:
    running, ended = unknown(), unknown(1).model_copy(update={"status": ContainerStatus.EXITED, "exit_code": 0})
    await ready.heartbeat(containers=[running, ended])
    await ready.settle()
    set_up(ready.app, ready.settings, ready.database, ready.engine, ready.clock)
    await ok(ready.admin.delete(f"{V1}/nodes/worker1/unknown-containers"))
    assert removed(ready) == {running.id, ended.id}


async def test_a_node_with_them_is_not_deleted(ready: Cluster) -> None:
    """In maintenance and without sessions it seems empty, and their GPUs would be forgotten with it."""
    await ready.heartbeat(containers=[unknown()])
    await ready.settle()
    await ok(ready.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    told = await refused(ready.admin.delete(f"{V1}/nodes/worker1"), 409)
    assert told["reason"] == "worker1 runs 1 containers of sessions that the database does not know"
    assert told["hint"] == "end them first: `penstock node end-unknown worker1`"
    await ready.heartbeat(containers=[])
    await ready.settle()
    await ok(ready.admin.delete(f"{V1}/nodes/worker1"))


async def test_after_a_time_they_are_removed(database_url: str) -> None:
    async with running_cluster(database_url, unknown_containers_keep_s=0) as cluster:
        await cluster.heartbeat(containers=[unknown()])
        await cluster.settle()
        assert removed(cluster) == {"session-unknown-0"}


async def test_one_that_has_ended_holds_nothing_and_hinders_nothing(ready: Cluster) -> None:
    """As that of a session which was deleted while its machine was down."""
    ended = unknown().model_copy(update={"status": ContainerStatus.EXITED, "exit_code": 255})
    await ready.heartbeat(containers=[ended])
    await ready.settle()
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert (node["unknown_containers"], node["message"]) == (0, "")
    assert removed(ready) == set(), "the database may be an older one"
    await run(ready)
