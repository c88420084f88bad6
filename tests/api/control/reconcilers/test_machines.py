"""Sessions and their machines: agents that are away, late, or know more than is wanted."""

from __future__ import annotations

import pytest

from api.endpoints.app import create_app
from api.engine.base import UnreachableError
from api.resources.sessions import changes, service
from api.resources.sessions.changes import Change
from api.tables.sessions import State
from common.errors import ConflictError, InputError
from common.protocol import ContainerState, ContainerStatus
from tests.api.cluster import V1, Cluster, ok, settle
from tests.api.steps import delete, once, pass_time, run, try_again

pytestmark = pytest.mark.anyio


async def test_late_news_of_the_start_do_not_set_a_running_session_back(ready: Cluster) -> None:
    session = await run(ready)
    late = ContainerState(
        id=ready.container(session)[1], session_id=session["id"], status=ContainerStatus.CREATING, gpus=[]
    )
    await ready.heartbeat(containers=[late])
    await ready.manager.observe()
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_a_container_on_its_way(ready: Cluster) -> None:
    ready.engine.first_status = ContainerStatus.PULLING
    await ready.submit("demo")
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("PREPARING", "pulls the image")
    ready.change_container(session, status=ContainerStatus.RUNNING)
    await ready.heartbeat()
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("RUNNING", "")


async def test_a_container_that_cannot_start(ready: Cluster) -> None:
    ready.engine.first_status = ContainerStatus.PULLING
    await ready.submit("demo")
    await ready.settle()
    session = await ready.session("demo")
    ready.change_container(session, status=ContainerStatus.FAILED, error="no such image")
    await ready.heartbeat()
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "no such image")
    assert ready.engine.containers == {}


async def test_of_what_an_agent_says_the_beginning_is_kept(ready: Cluster) -> None:
    """A container engine quotes the command, however long that is."""
    session = await run(ready)
    ready.change_container(session, status=ContainerStatus.FAILED, error="no such program: " + "x" * 100_000)
    await ready.heartbeat()
    await ready.settle()
    session = await ready.session("demo")
    for told in (session["reason"], session["containers"][0]["error"]):
        assert told.startswith("no such program: xx")
        assert len(told) == 2000


async def test_an_agent_that_refuses(ready: Cluster) -> None:
    ready.engine.failure = InputError("the node has no GPU-7", where="gpus")
    await ready.submit("demo")
    await ready.manager.reconcile()
    while ready.manager.operations:
        await next(iter(ready.manager.operations.values()))
    assert (await ready.session("demo"))["state"] == "TERMINATING", "a container may exist until it is known not to"
    ready.engine.failure = None
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "worker1 refused it: the node has no GPU-7")


@pytest.mark.usefixtures("impatient")
async def test_an_agent_that_cannot_be_reached_at_all(ready: Cluster) -> None:
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer: refused", delivered=False)
    await ready.submit("demo")
    for _ in range(3):
        await once(ready)
    session = await ready.session("demo")
    reason = "the agent of worker1 does not answer: refused"
    assert (session["state"], session["reason"]) == ("PREPARING", f"{reason}; it is tried again")
    assert [call for call, _, _ in ready.engine.calls if call not in ("pull", "storage", "probe")] == ["launch"] * 3

    pass_time(ready, 61)
    await once(ready)
    await once(ready)
    session = await ready.session("demo")
    assert session["attempt"] == 1, "nothing is there, so nothing is waited for"
    ready.engine.failure = None
    await try_again(ready)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"


@pytest.mark.usefixtures("impatient")
async def test_gpus_stay_taken_while_a_container_may_exist(ready: Cluster) -> None:
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer: timeout", delivered=True)
    await ready.submit("demo")
    await once(ready)
    await once(ready)
    pass_time(ready, 61)
    for _ in range(5):
        await once(ready)
    session = await ready.session("demo")
    assert session["state"] == "TERMINATING"
    assert session["reason"].startswith("no agent took it within 60 s, so it waits again")
    assert (await ok(ready.admin.get(f"{V1}/projects/team-a")))["used_milli"] == 500
    ready.engine.failure = None
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["attempt"]) == ("RUNNING", 1)


@pytest.mark.usefixtures("impatient")
async def test_an_agent_that_comes_back_in_time(ready: Cluster) -> None:
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=True)
    await ready.submit("demo")
    await once(ready)
    assert (await ready.session("demo"))["state"] == "PREPARING"
    ready.engine.failure = None
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"


@pytest.mark.usefixtures("impatient")
async def test_gpus_that_are_in_use_for_a_moment_longer(ready: Cluster) -> None:
    """A container that is being removed may still hold them."""
    ready.engine.failure = ConflictError("0.5 of GPU-worker1-0 is in use")
    await ready.submit("demo")
    await once(ready)
    session = await ready.session("demo")
    assert session["reason"] == "worker1 refused it: 0.5 of GPU-worker1-0 is in use; it is tried again"
    ready.engine.failure = None
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"


@pytest.mark.parametrize(
    ("status", "limit_s", "reason"),
    [
        (ContainerStatus.PULLING, 3600, "its image was not there after 3600 s"),
        (ContainerStatus.CREATING, 300, "its container did not start within 300 s"),
    ],
)
async def test_a_start_has_a_deadline(ready: Cluster, status: ContainerStatus, limit_s: int, reason: str) -> None:
    ready.engine.first_status = status
    await ready.submit("demo")
    await ready.settle()
    pass_time(ready, limit_s - 5)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "PREPARING"
    pass_time(ready, limit_s + 5)
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", reason)
    assert ready.engine.containers == {}


async def test_a_launch_that_a_restarted_agent_forgot_is_repeated(ready: Cluster) -> None:
    """While an image is pulled there is no container yet from which the agent could learn of it."""
    ready.engine.first_status = ContainerStatus.PULLING
    await ready.submit("demo")
    await ready.settle()
    ready.engine.containers.clear()
    ready.engine.first_status = ContainerStatus.RUNNING
    for _ in range(2):
        await ready.heartbeat(containers=[])
        await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"
    assert len(ready.engine.containers) == 1


async def test_deletion_waits_for_the_agent(ready: Cluster) -> None:
    await run(ready)
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=True)
    await delete(ready)
    await ready.settle()
    session = await ready.session("demo")
    assert session["state"] == "TERMINATING"
    assert session["reason"] == ("the agent of worker1 does not answer; its GPUs are freed when its container is gone")
    assert (await ok(ready.admin.get(f"{V1}/projects/team-a")))["used_milli"] == 500


@pytest.mark.parametrize("state", [State.SCHEDULED, State.PREPARING, State.TERMINATING])
async def test_a_restarted_api_goes_on_from_the_database(ready: Cluster, state: State) -> None:
    await run(ready)
    async with ready.database.transaction() as db:
        (session,) = await service.in_states(db, [State.RUNNING])
        assert await service.change(db, session, state=state)
        await changes.write(db, [Change.of(session, {}, {0: {"status": None}})])
    restarted = create_app(ready.settings, ready.database, ready.engine, reconcile=False)
    await settle(restarted.state.manager)
    expected = "TERMINATED" if state is State.TERMINATING else "RUNNING"
    assert await ready.states() == {"demo": expected}
    assert len(ready.engine.containers) == (expected == "RUNNING"), "the same container, not another one"


async def test_a_container_on_the_wrong_node_is_an_orphan(ready: Cluster) -> None:
    session = await run(ready)
    wanted = ready.engine.containers[ready.container(session)]
    await ready.heartbeat("worker2", containers=[wanted])
    await ready.settle()
    assert [call for call in ready.engine.calls if call[0] == "terminate"] == [("terminate", "worker2", wanted.id)]


async def test_a_container_that_vanished(ready: Cluster) -> None:
    await run(ready)
    await ready.heartbeat(containers=[])
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING", "one heartbeat may be older than the container"
    await ready.heartbeat(containers=[])
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "its container is gone from worker1")
