"""Sessions from submission to their end, with machines that exist only in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from datetime import timedelta
from typing import Any

import pytest

from api.app import create_app
from api.database import now
from api.engine.base import Target, UnreachableError
from api.reconcilers import manager as managing
from api.sessions import endpoints, service
from api.sessions.models import State
from appliance.agent.protocol import ContainerState, ContainerStatus
from reservoir.errors import InputError
from tests.unit.api.conftest import V1, Cluster, ok, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ready(cluster: Cluster) -> Cluster:
    """A cluster with a node of four GPUs, an image and a project that may use all of it."""
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    return cluster


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is tried again be due at once."""
    monkeypatch.setattr(managing, "RETRY_S", (0.0,))


async def run(cluster: Cluster, name: str = "demo", **more: Any) -> dict[str, Any]:
    """Submit a session and return it as it runs."""
    await cluster.submit(name, **more)
    await cluster.manager.settle()
    session = await cluster.session(name)
    assert session["state"] == "RUNNING", session
    return session


async def delete(cluster: Cluster, name: str = "demo") -> Any:
    return await ok(cluster.admin.delete(f"{V1}/sessions/{name}", params={"project": "team-a"}))


async def test_two_run_and_the_third_waits_for_the_quota(cluster: Cluster) -> None:
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 1000)
    for name in ("one", "two", "three"):
        await cluster.submit(name)
    await cluster.manager.settle()
    assert await cluster.states() == {"one": "RUNNING", "two": "RUNNING", "three": "PENDING"}
    assert (await cluster.session("three"))["reason"] == "team-a holds 1 of its 1 GPU"

    await delete(cluster, "one")
    assert (await cluster.session("one"))["state"] == "TERMINATING"
    await cluster.manager.settle()
    assert await cluster.states() == {"one": "TERMINATED", "two": "RUNNING", "three": "RUNNING"}


async def test_what_the_agent_is_asked_for(ready: Cluster) -> None:
    session = await run(
        ready,
        gpu_milli=2500,
        interactive=True,
        command=["bash", "-c"],
        args=["echo $A"],
        environment={"A": "1"},
        volumes=[{"name": "data", "target": "/data"}],
    )
    spec = ready.engine.specs[f"session-{session['id']}-0-0"]
    assert [(gpu.uuid, gpu.milli) for gpu in spec.gpus] == [
        ("GPU-worker1-0", 500),
        ("GPU-worker1-1", 1000),
        ("GPU-worker1-2", 1000),
    ]
    assert (spec.command, spec.args, spec.environment) == (["bash", "-c"], ["echo $A"], {"A": "1"})
    assert spec.image == "reservoir:5000/penstock/python:3.11"
    assert (spec.project, spec.user, spec.interactive) == ("team-a", "admin", True)
    assert [(mount.source, mount.target) for mount in spec.mounts] == [("/srv/shared/team-a/data", "/data")]
    assert session["kind"] == "interactive"
    assert session["node"] == "worker1"
    assert [(gpu["index"], gpu["milli"]) for gpu in session["gpus"]] == [(0, 500), (1, 1000), (2, 1000)]
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert [gpu["used_milli"] for gpu in node["gpus"]] == [500, 1000, 1000, 0]


@pytest.mark.parametrize(
    ("change", "where", "reason"),
    [
        ({"gpu_milli": 0}, "gpu_milli", "not above 0"),
        ({"gpu_milli": -500}, "gpu_milli", "not above 0"),
        ({"gpu_milli": 25}, "gpu_milli", "finer than the split"),
        ({"gpu_milli": 17000}, "gpu_milli", "more than a container may hold"),
        ({"gpu_milli": 10**30}, "gpu_milli", "more than a container may hold"),
        ({"gpu_milli": 4050}, "gpu_milli", "no node can ever hold 4.05 GPUs"),
        ({"gpu_milli": 0.5}, "gpu_milli", "integer"),
        ({"gpu_milli": None}, "gpu_milli", "integer"),
        ({"name": "Demo"}, "name", "lower-case"),
        ({"name": "a" * 21}, "name", "20"),
        ({"project": "nobody"}, "project", "no project nobody"),
        ({"image": "rust"}, "image", "no image rust"),
        ({"image": ""}, "image", "at least 1"),
        ({"command": []}, "command", "at least 1"),
        ({"command": "bash"}, "command", "list"),
        ({"args": ["a\0"]}, "args[0]", "NUL"),
        ({"environment": {"1A": "x"}}, "environment.1A.[key]", "pattern"),
        ({"environment": {"A": 1}}, "environment.A", "string"),
        ({"volumes": [{"name": "data", "target": "data"}]}, "volumes[0].target", "pattern"),
        ({"volumes": [{"name": "..", "target": "/data"}]}, "volumes[0].name", "lower-case"),
        ({"volumes": [{"name": "data", "target": "/a/../b"}]}, "volumes[0].target", "folders"),
        ({"volumes": [{"name": "a", "target": "/x"}, {"name": "b", "target": "/x"}]}, "volumes", "one target"),
        ({"gpus": 1}, "gpus", "unknown key"),
    ],
)
async def test_bad_sessions_change_nothing(ready: Cluster, change: dict[str, Any], where: str, reason: str) -> None:
    body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500, **change}
    status = 404 if where == "project" else 422
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body), status)
    assert error["where"] == where
    assert reason in error["reason"]
    assert error["cure"]
    assert await ready.states() == {}


async def test_the_largest_possible_size_is_named(ready: Cluster) -> None:
    body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 8000}
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body), 422)
    assert error["cure"] == "ask for at most 4 GPUs, the size of the largest node"


async def test_the_images_that_exist_are_named(ready: Cluster) -> None:
    body = {"name": "demo", "project": "team-a", "image": "rust", "gpu_milli": 500}
    assert (await refused(ready.admin.post(f"{V1}/sessions", json=body), 422))["cure"] == "choose one of python:3.11"


async def test_volumes_need_shared_storage(database_url: str) -> None:
    from tests.unit.api.conftest import running_cluster

    async with running_cluster(database_url) as cluster:
        await cluster.add_image()
        await cluster.add_project()
        body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500}
        body |= {"volumes": [{"name": "data", "target": "/data"}]}
        assert (await refused(cluster.admin.post(f"{V1}/sessions", json=body), 422))["where"] == "volumes"


async def test_names_are_unique_while_a_session_lives(ready: Cluster) -> None:
    await run(ready)
    body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500}
    assert "is RUNNING" in (await refused(ready.admin.post(f"{V1}/sessions", json=body), 409))["reason"]
    await ready.add_project("team-b", 1000)
    await ready.submit("demo", project="team-b")
    await delete(ready)
    await ready.manager.settle()
    again = await ready.submit("demo")
    assert (await ready.session("demo"))["id"] == again["id"], "the live one is meant"


async def test_without_nodes_a_session_waits(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    await cluster.manager.settle()
    session = await cluster.session("demo")
    assert (session["state"], session["reason"], session["node"]) == ("PENDING", "no node is ready", None)
    await cluster.add_node()
    assert (await cluster.session("demo"))["state"] == "RUNNING"


async def test_deleted_before_it_ran(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    assert (await delete(cluster))["state"] == "TERMINATED"
    assert cluster.engine.calls == []
    await refused(cluster.admin.delete(f"{V1}/sessions/demo", params={"project": "team-a"}), 404)


async def test_deleting_twice_is_no_error(ready: Cluster) -> None:
    await run(ready)
    assert (await delete(ready))["state"] == (await delete(ready))["state"] == "TERMINATING"


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
    await ready.manager.settle()
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


async def test_of_a_long_log_the_end_is_kept(ready: Cluster) -> None:
    session = await run(ready)
    ready.engine.output[ready.container(session)[1]] = b"x" * 300_000 + b"end"
    await delete(ready)
    await ready.manager.settle()
    log = await ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"})
    assert len(log.content) == 256 * 1024
    assert log.content.endswith(b"end")


async def test_the_log_of_a_running_session(ready: Cluster) -> None:
    session = await run(ready)
    ready.engine.output[ready.container(session)[1]] = b"epoch 1\n"
    log = await ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"})
    assert log.text == "epoch 1\n"
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await refused(ready.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"}), 503)


async def test_a_client_that_goes_away_before_the_first_line_leaves_nothing_behind(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(ready)
    open_streams: list[str] = []

    async def silent(_target: Target, container: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        open_streams.append(container)
        followed.set()
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            open_streams.remove(container)

    async def receive() -> dict[str, str]:
        await followed.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        """Take the head of the answer."""

    followed = asyncio.Event()
    monkeypatch.setattr(ready.engine, "logs", silent)
    monkeypatch.setattr(endpoints, "FIRST_PART_S", 0.01)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": "GET",
        "path": f"{V1}/sessions/demo/logs",
        "query_string": b"project=team-a&follow=true",
        "headers": [(b"authorization", ready.admin.headers["authorization"].encode())],
    }
    async with asyncio.timeout(20):
        await ready.app(scope, receive, send)
    assert open_streams == []


async def test_a_waiting_session_has_no_log(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    await cluster.submit("demo")
    assert (await cluster.admin.get(f"{V1}/sessions/demo/logs", params={"project": "team-a"})).text == ""


async def test_failed_sessions_are_listed_until_they_are_deleted(ready: Cluster) -> None:
    session = await run(ready)
    ready.exit_container(session, 1)
    await ready.heartbeat()
    await ready.manager.settle()
    listed = await ok(ready.admin.get(f"{V1}/sessions"))
    assert [row["state"] for row in listed] == ["FAILED"]
    assert (await delete(ready))["reason"] == "its command ended with exit code 1"
    assert await ok(ready.admin.get(f"{V1}/sessions")) == []
    assert len(await ok(ready.admin.get(f"{V1}/sessions", params={"all": True}))) == 1


async def test_late_news_of_the_start_do_not_set_a_running_session_back(ready: Cluster) -> None:
    session = await run(ready)
    late = ContainerState(
        id=ready.container(session)[1], session_id=session["id"], status=ContainerStatus.CREATING, gpus=[]
    )
    await ready.heartbeat(containers=[late])
    await ready.manager._observer.apply()
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_a_container_on_its_way(ready: Cluster) -> None:
    ready.engine.first_status = ContainerStatus.PULLING
    await ready.submit("demo")
    await ready.manager.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("PREPARING", "pulls the image")
    ready.change_container(session, status=ContainerStatus.RUNNING)
    await ready.heartbeat()
    await ready.manager.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("RUNNING", "")


async def test_a_container_that_cannot_start(ready: Cluster) -> None:
    ready.engine.first_status = ContainerStatus.PULLING
    await ready.submit("demo")
    await ready.manager.settle()
    session = await ready.session("demo")
    ready.change_container(session, status=ContainerStatus.FAILED, error="no such image")
    await ready.heartbeat()
    await ready.manager.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "no such image")
    assert ready.engine.containers == {}


async def test_an_agent_that_refuses(ready: Cluster) -> None:
    ready.engine.failure = InputError("the node has no GPU-7", where="gpus")
    await ready.submit("demo")
    await ready.manager._pass()
    while ready.manager._busy:
        await next(iter(ready.manager._busy.values()))
    assert (await ready.session("demo"))["state"] == "TERMINATING", "a container may exist until it is known not to"
    ready.engine.failure = None
    await ready.manager.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "worker1 refused it: the node has no GPU-7")


@pytest.mark.usefixtures("impatient")
async def test_an_agent_that_cannot_be_reached_at_all(ready: Cluster) -> None:
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer: refused", delivered=False)
    await ready.submit("demo")
    await ready.manager.settle()
    session = await ready.session("demo")
    assert session["state"] == "FAILED"
    assert session["reason"] == "the agent of worker1 does not answer: refused (5 tries)"
    assert [call for call, _, _ in ready.engine.calls] == ["launch"] * 5
    assert (await ok(ready.admin.get(f"{V1}/projects/team-a")))["used_milli"] == 0


@pytest.mark.usefixtures("impatient")
async def test_gpus_stay_taken_while_a_container_may_exist(ready: Cluster) -> None:
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer: timeout", delivered=True)
    await ready.submit("demo")
    for _ in range(12):
        await ready.manager._pass()
        for task in list(ready.manager._busy.values()):
            await task
    session = await ready.session("demo")
    assert session["state"] == "TERMINATING"
    assert (await ok(ready.admin.get(f"{V1}/projects/team-a")))["used_milli"] == 500
    ready.engine.failure = None
    await ready.manager.settle()
    session = await ready.session("demo")
    assert (session["state"], session["finished_at"] is not None) == ("FAILED", True)
    assert (await ok(ready.admin.get(f"{V1}/projects/team-a")))["used_milli"] == 0


@pytest.mark.usefixtures("impatient")
async def test_an_agent_that_comes_back_in_time(ready: Cluster) -> None:
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=True)
    await ready.submit("demo")
    await ready.manager._pass()
    for task in list(ready.manager._busy.values()):
        await task
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == (
        "PREPARING",
        "the agent of worker1 does not answer; try 1 of 5",
    )
    ready.engine.failure = None
    await ready.manager.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_deletion_waits_for_the_agent(ready: Cluster) -> None:
    await run(ready)
    ready.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=True)
    await delete(ready)
    await ready.manager.settle()
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
    restarted = create_app(ready.settings, ready.database, ready.engine, reconcile=False)
    await restarted.state.manager.settle()
    expected = "TERMINATED" if state is State.TERMINATING else "RUNNING"
    assert await ready.states() == {"demo": expected}
    assert len(ready.engine.containers) == (expected == "RUNNING"), "the same container, not another one"


async def test_ghosts_are_removed(ready: Cluster) -> None:
    session = await run(ready)
    wanted = ready.engine.containers[ready.container(session)]
    ghosts = [
        ContainerState(id="session-old", session_id="no-uuid", status=ContainerStatus.RUNNING),
        ContainerState(
            id="session-00000000-0000-4000-8000-000000000000",
            session_id="00000000-0000-4000-8000-000000000000",
            status=ContainerStatus.EXITED,
        ),
        wanted.model_copy(update={"id": "session-copy"}),
    ]
    await ready.heartbeat(containers=[wanted, *ghosts])
    await ready.manager.settle()
    removed = {id_ for call, _, id_ in ready.engine.calls if call == "terminate"}
    assert removed == {ghost.id for ghost in ghosts}
    assert (await ready.session("demo"))["state"] == "RUNNING"


async def test_a_container_on_the_wrong_node_is_a_ghost(ready: Cluster) -> None:
    session = await run(ready)
    wanted = ready.engine.containers[ready.container(session)]
    await ready.heartbeat("worker2", containers=[wanted])
    await ready.manager.settle()
    assert [call for call in ready.engine.calls if call[0] == "terminate"] == [("terminate", "worker2", wanted.id)]


async def test_a_container_that_vanished(ready: Cluster) -> None:
    await run(ready)
    await ready.heartbeat(containers=[])
    await ready.manager.settle()
    assert (await ready.session("demo"))["state"] == "RUNNING", "one heartbeat may be older than the container"
    await ready.heartbeat(containers=[])
    await ready.manager.settle()
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("FAILED", "its container is gone from worker1")


async def test_a_lost_node_keeps_its_sessions(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(ready)
    later = now() + timedelta(seconds=60)
    monkeypatch.setattr(managing, "now", lambda: later)
    monkeypatch.setattr(ready.manager, "_began", ready.manager._began - 60)
    await ready.manager.settle()
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert node["state"] == "lost"
    session = await ready.session("demo")
    assert (session["state"], session["reason"]) == ("RUNNING", "worker1 is lost: nothing heard from it for 30 s")
    await ready.submit("next")
    await ready.manager._pass()
    assert (await ready.session("next"))["reason"] == "no node is ready"
    monkeypatch.undo()
    await ready.heartbeat()
    await ready.manager.settle()
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["state"] == "ready"
    assert (await ready.session("demo"))["reason"] == ""


async def test_a_change_of_somebody_else_wins(ready: Cluster) -> None:
    """Between loading a session and writing the outcome a user deletes it: the outcome is dropped."""
    await ready.submit("demo")
    await ready.manager._pass()
    await delete(ready)
    while ready.manager._busy:
        await next(iter(ready.manager._busy.values()))
    assert (await ready.session("demo"))["state"] == "TERMINATING"
    await ready.manager.settle()
    assert await ready.states() == {"demo": "TERMINATED"}
    assert ready.engine.containers == {}
