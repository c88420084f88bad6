"""Sessions from submission to their end, with machines that exist only in memory."""

from __future__ import annotations

from uuid import uuid4

import pytest

from api.engine.base import UnreachableError
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import delete, run, try_again, wish

pytestmark = pytest.mark.anyio


async def test_two_run_and_the_third_waits_for_the_quota(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 1000)
    await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False}))
    for name in ("one", "two", "three"):
        await cluster.submit(name)
    await cluster.settle()
    assert await cluster.states() == {"one": "RUNNING", "two": "RUNNING", "three": "PENDING"}
    assert (await cluster.session("three"))["reason"] == (
        "team-a holds 1 GPU of its quota of 1 GPU and may not go beyond; "
        "stop one of its sessions, or ask for a larger quota"
    )

    await delete(cluster, "one")
    assert (await cluster.session("one"))["state"] == "TERMINATING"
    await cluster.settle()
    assert await cluster.states() == {"one": "TERMINATED", "two": "RUNNING", "three": "RUNNING"}


async def test_without_nodes_a_session_waits(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    await cluster.settle()
    session = await cluster.session("demo")
    assert (session["state"], session["reason"], session["node"]) == (
        "PENDING",
        "no node is ready; ask the administrator when nodes come back",
        None,
    )
    await cluster.add_node()
    assert (await cluster.session("demo"))["state"] == "RUNNING"


async def test_deleted_before_it_ran(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    answer = await delete(cluster)
    assert (answer["state"], answer["reason"]) == ("TERMINATED", "deleted before it ran")
    assert cluster.engine.calls == []


async def test_deletion_is_a_wish_that_may_be_repeated(ready: Cluster) -> None:
    """202 while the session is terminating, 200 when it has ended; nothing of it changes any more."""
    await run(ready)
    first = await wish(ready, "demo")
    assert (first.status_code, first.json()["state"]) == (202, "TERMINATING")
    again = await wish(ready, "demo")
    assert (again.status_code, again.json()) == (202, first.json())
    await ready.settle()
    ended = await ready.session("demo")
    last = await wish(ready, "demo")
    assert (last.status_code, last.json()["state"], last.json()) == (200, "TERMINATED", ended)


async def test_a_session_that_is_failing_is_off_the_lists_when_it_was_deleted(ready: Cluster) -> None:
    session = await run(ready)
    ready.exit_container(session, 1)
    await ready.heartbeat()
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await ready.settle()
    answer = await delete(ready)
    assert (answer["state"], answer["reason"]) == ("TERMINATING", "its command ended with exit code 1")
    ready.engine.failure = None
    await try_again(ready)
    assert await ok(ready.admin.get(f"{V1}/sessions")) == []
    assert (await ready.session("demo"))["exit_code"] == 1


async def test_unknown_and_invisible_sessions_are_not_found(ready: Cluster) -> None:
    session = await run(ready)
    async with await ready.user("eve") as eve:
        for key in ("demo", session["id"]):
            await refused(eve.delete(f"{V1}/sessions/{key}?project=team-a"), 404)
    for key in ("nothing", str(uuid4())):
        await refused(ready.admin.delete(f"{V1}/sessions/{key}?project=team-a"), 404)
    await ready.add_project("team-b")
    await refused(ready.admin.delete(f"{V1}/sessions/{session['id']}?project=team-b"), 404)
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_a_name_that_was_used_again(ready: Cluster) -> None:
    """It is the live session's; then that of what lists still show; any other is found by its id."""
    failed = await run(ready)
    ready.exit_container(failed, 1)
    await ready.heartbeat()
    await ready.settle()
    again = await run(ready)
    assert (await delete(ready))["id"] == again["id"]
    assert (await delete(ready))["id"] == again["id"], "it lives as long as it is terminating"
    await ready.settle()
    assert (await ready.session("demo"))["id"] == failed["id"]
    assert (await ready.session(again["id"]))["state"] == "TERMINATED"
    assert (await delete(ready))["id"] == failed["id"]
    assert await ok(ready.admin.get(f"{V1}/sessions")) == []
    assert (await delete(ready))["id"] == again["id"], "the newest"
    assert (await wish(ready, failed["id"])).json()["id"] == failed["id"]


async def test_only_the_owner_and_administrators_act_on_a_session(ready: Cluster) -> None:
    async with await ready.user("alice") as alice, await ready.user("bob") as bob:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice", "bob"]}))
        body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500}
        await ok(alice.post(f"{V1}/sessions", json=body))
        assert (await ok(bob.get(f"{V1}/sessions/demo?project=team-a")))["user"] == "alice"
        await refused(bob.delete(f"{V1}/sessions/demo?project=team-a"), 403)
        await ok(alice.delete(f"{V1}/sessions/demo?project=team-a"))


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [(0, "TERMINATED", ""), (3, "FAILED", "its command ended with exit code 3"), (137, "FAILED", "out of memory")],
)
async def test_a_command_that_ends(ready: Cluster, code: int, state: str, reason: str) -> None:
    session = await run(ready)
    ready.engine.output[ready.container(session)[1]] = b"line 1\nline 2\n"
    ready.exit_container(session, code)
    if code == 137:
        ready.change_container(session, error="out of memory")
    await ready.heartbeat()
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["exit_code"], session["reason"]) == (state, code, reason)
    assert session["finished_at"] >= session["started_at"] >= session["created_at"]
    assert ready.engine.containers == {}, "the container is removed"
    log = await ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"})
    assert log.text == "line 1\nline 2\n", "the log outlives the container"
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    log = await ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a", "tail": 1})
    assert log.text == "line 2\n"
    assert (await ok(ready.admin.get(f"{V1}/projects/team-a")))["used_milli"] == 0


async def test_failed_sessions_are_listed_until_they_are_deleted(ready: Cluster) -> None:
    session = await run(ready)
    ready.exit_container(session, 1)
    await ready.heartbeat()
    await ready.settle()
    listed = await ok(ready.admin.get(f"{V1}/sessions"))
    assert [row["state"] for row in listed] == ["FAILED"]
    assert (await delete(ready))["reason"] == "its command ended with exit code 1"
    assert await ok(ready.admin.get(f"{V1}/sessions")) == []
    assert len(await ok(ready.admin.get(f"{V1}/sessions", params={"all": True}))) == 1


async def test_a_change_of_somebody_else_wins(ready: Cluster) -> None:
    """Between loading a session and writing the outcome a user deletes it: the outcome is dropped."""
    await ready.submit("demo")
    await ready.manager.reconcile()
    await delete(ready)
    while ready.manager.operations:
        await next(iter(ready.manager.operations.values()))
    assert (await ready.session("demo"))["state"] == "TERMINATING"
    await ready.settle()
    assert await ready.states() == {"demo": "TERMINATED"}
    assert ready.engine.containers == {}
