"""Nodes that are lost, and come back or do not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from api.clock import now
from api.control.reconcilers.failures import RETRY_S, Failures
from api.control.reconcilers.timed import SLACK_S, STALL_S, TimedReconciler
from api.engine.base import UnreachableError
from api.resources.nodes import service as nodes
from api.resources.sessions import changes, service
from api.resources.sessions.changes import Change
from api.tables.sessions import Session, State
from common.protocol import ContainerState, ContainerStatus
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import delete, listen, lose, pass_time, run

pytestmark = pytest.mark.anyio


async def test_an_interactive_session_is_marked_and_kept(ready: Cluster) -> None:
    await run(ready, interactive=True)
    await lose(ready)
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("RUNNING", "worker1 is lost: nothing heard from it for 15 s")
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert node["message"].startswith("its agent has not reported since ")
    await ready.submit("next")
    await ready.settle()
    assert (await ready.session("next"))["state"] == "PENDING", "a lost node takes nothing new"

    await ready.heartbeat()
    await ready.settle()
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert (node["state"], node["message"]) == ("ready", "")
    session = await ready.session("demo")
    assert (session["state"], session["reason"], session["attempt"]) == ("RUNNING", "", 0)


async def test_a_training_starts_again_elsewhere_and_what_it_left_is_removed(ready: Cluster) -> None:
    before = await run(ready)
    left = ready.container(before)
    await ready.add_node("worker2")
    await lose(ready)
    session = await ready.session("demo")
    assert (session["state"], session["node"], session["attempt"]) == ("RUNNING", "worker2", 1)
    assert left in ready.engine.containers, "nobody could remove it"

    await ready.heartbeat("worker1")
    await ready.settle()
    assert list(ready.engine.containers) == [("worker2", f"session-{before['id']}-1-0")]


async def test_a_training_that_waits_gets_its_running_container_back(ready: Cluster) -> None:
    before = await run(ready, gpu_milli=1500)
    await lose(ready)
    session = await ready.session("demo")
    assert (session["state"], session["attempt"]) == ("PENDING", 1)
    assert "no node" in session["reason"]

    await ready.heartbeat()
    await ready.settle()
    after = await ready.session("demo")
    assert (after["state"], after["attempt"], after["reason"]) == ("RUNNING", 0, "")
    assert after["gpus"] == before["gpus"], "the places are rebuilt from what the agent says"
    assert [call for call, _, _ in ready.engine.calls if call in {"launch", "terminate"}] == ["launch"]
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert node["used_milli"] == 1500


async def test_a_training_that_was_deleted_meanwhile_is_not_taken_back(ready: Cluster) -> None:
    await run(ready)
    await lose(ready)
    await delete(ready)
    await ready.heartbeat()
    await ready.settle()
    assert await ready.states() == {"demo": "TERMINATED"}
    assert ready.engine.containers == {}


async def test_a_late_heartbeat_does_not_bring_a_session_back_that_was_taken_back(ready: Cluster) -> None:
    """Only the return of a lost node does: what was reclaimed has no container any more."""
    session = await run(ready)
    late = ready.engine.containers[ready.container(session)]
    await ready.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "draining"})
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "PENDING"
    await ready.heartbeat(containers=[late])
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "PENDING"


async def test_a_gang_on_two_nodes_loses_both_when_it_loses_one(cluster: Cluster) -> None:
    await cluster.add_node("worker1", 2)
    await cluster.add_node("worker2", 2)
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    await run(cluster, gpu_milli=2000, replicas=2)
    await lose(cluster, "worker1")
    session = await cluster.session("demo")
    assert (session["state"], session["attempt"]) == ("PENDING", 1), "it needs both nodes"
    assert [node for node, _ in cluster.engine.containers] == ["worker1"]

    # one tells of the container that was left, the next that it is gone
    for _ in range(2):
        await cluster.heartbeat("worker1", 2)
        await cluster.settle()
        await cluster.settle()
    session = await cluster.session("demo")
    assert (session["state"], session["attempt"]) == ("RUNNING", 1)
    assert sorted(id_[-3:] for _, id_ in cluster.engine.containers) == ["1-0", "1-1"]


async def test_a_deletion_on_a_lost_node_ends_when_the_node_is_given_up(ready: Cluster) -> None:
    await run(ready, interactive=True)
    await lose(ready)
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await delete(ready)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "TERMINATING"
    await _gone(ready)
    assert (await ready.session("demo"))["state"] == "TERMINATED"


async def _gone(cluster: Cluster) -> None:
    await listen(cluster, for_s=cluster.settings.node_gone_s + RETRY_S[-1], silent="worker1")
    await cluster.settle()


async def test_only_a_lost_or_empty_node_can_be_deleted(ready: Cluster) -> None:
    await run(ready, "work")
    await run(ready, "talk", interactive=True)
    error = await refused(ready.admin.delete(f"{V1}/nodes/worker1"), 409)
    assert error["reason"] == "worker1 is ready and active, with 2 live sessions"
    await lose(ready)
    await ok(ready.admin.delete(f"{V1}/nodes/worker1"))
    await ready.settle()
    assert await ok(ready.admin.get(f"{V1}/nodes")) == []
    assert await ready.states() == {"work": "PENDING", "talk": "FAILED"}
    assert (await ready.session("talk"))["reason"] == "worker1 was removed"

    await ready.heartbeat(containers=[])
    await ready.settle()
    assert (await ready.session("work"))["state"] == "RUNNING", "it came back as a new node"


async def test_a_message_of_an_unknown_session_does_not_disturb_the_return(ready: Cluster) -> None:
    await run(ready, interactive=True)
    await lose(ready)
    unknown = ContainerState(
        id="session-x", session_id="00000000-0000-4000-8000-000000000000", status=ContainerStatus.RUNNING
    )
    await ready.heartbeat(containers=[*ready.engine.containers.values(), unknown])
    await ready.settle()
    assert (await ready.session("demo"))["reason"] == ""
    pass_time(ready, 10)
    await ready.settle()
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert (node["state"], node["unknown_containers"]) == ("ready", 1)


async def test_who_leads_next_knows_for_how_long_nodes_have_been_silent(ready: Cluster) -> None:
    """As where a node goes together with the leader: it is lost no later for that."""
    await ready.add_node("worker2")
    successor = TimedReconciler(ready.database, ready.settings, ready.clock, Failures())
    until = ready.clock.passed + ready.settings.node_lost_s + SLACK_S
    while ready.clock.passed < until:
        async with ready.database.transaction() as db:
            await nodes.note_alive(db, {"worker2": now()})
        await successor.watch()
        ready.clock.passed += STALL_S
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["state"] == "ready", "it does not lead yet"
    successor.begin()
    await successor.apply()
    found = await ok(ready.admin.get(f"{V1}/nodes"))
    assert {node["name"]: node["state"] for node in found} == {"worker1": "lost", "worker2": "ready"}


async def test_when_the_api_stood_still_nobody_was_silent(ready: Cluster) -> None:
    await run(ready)
    await listen(ready)
    ready.clock.passed += 60
    pass_time(ready, 60)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING", "every agent gets the time to be heard again"


async def test_what_an_agent_says_of_an_attempt_before_changes_nothing(ready: Cluster) -> None:
    await run(ready)
    async with ready.database.transaction() as db:
        before = (await service.in_states(db, [State.RUNNING]))[0]
        await db.execute(update(Session).values(attempt=1), execution_options={"synchronize_session": False})
        await changes.write(db, [Change.of(before, {}, {0: {"status": ContainerStatus.FAILED}})])
    async with ready.database.reading() as db:
        after = (await service.in_states(db, [State.RUNNING]))[0]
    assert after.containers[0].status is ContainerStatus.RUNNING


async def test_a_late_heartbeat_does_not_set_back_when_others_were_seen(ready: Cluster) -> None:
    async with ready.database.transaction() as db:
        seen = (await nodes.get(db, "worker1")).last_seen
        assert seen is not None
        await nodes.note_alive(db, {"worker1": seen - timedelta(seconds=30)})
    async with ready.database.reading() as db:
        assert (await nodes.get(db, "worker1")).last_seen == seen


def taken_away(cluster: Cluster, session: dict[str, Any]) -> ContainerState:
    """Return what an agent says of the session's container when it was taken away by no fault of its own."""
    state = cluster.engine.containers[cluster.container(session)]
    ended = {"status": ContainerStatus.FAILED, "error": "its machine left is not ready", "lost": True}
    return state.model_copy(update=ended)


async def test_a_training_whose_container_alone_is_lost_starts_again(ready: Cluster) -> None:
    """As behind a node that is a whole cluster: the node itself is well."""
    before = await run(ready)
    await ready.heartbeat(containers=[taken_away(ready, before)])
    await ready.settle()
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["attempt"]) == ("RUNNING", 1)
    assert [id_ for _, id_ in ready.engine.containers] == [f"session-{before['id']}-1-0"]


async def test_an_interactive_session_whose_container_is_lost_ends_with_the_reason(ready: Cluster) -> None:
    """There is nothing to keep: a person decides whether to begin anew."""
    before = await run(ready, interactive=True)
    await ready.heartbeat(containers=[taken_away(ready, before)])
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "its machine left is not ready")
