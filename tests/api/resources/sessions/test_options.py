"""What a submission may say beside its size: how many, when, how urgent, who may, ports, images, folders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from api.clock import now
from api.control import loop
from api.tables.sessions import State
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster
from tests.api.steps import body, delete, run

pytestmark = pytest.mark.anyio

TEAM_A = {"project": "team-a"}


@pytest.fixture
async def edged(database_url: str) -> AsyncIterator[Cluster]:
    """A ready cluster whose edge offers apps and whose nodes open /mnt, and /data for reading."""
    options = {"apps_url": "https://edge:9443", "host_paths": ("/mnt", "/data:ro")}
    async with running_cluster(database_url, **options) as cluster:
        await cluster.add_node()
        await cluster.add_image()
        await cluster.add_project("team-a", 4000)
        await cluster.add_project("team-b", 4000)
        yield cluster


async def test_a_batch_is_so_many_sessions(ready: Cluster) -> None:
    made = await ok(ready.admin.post(f"{V1}/sessions/batch", json=body("study", count=3)))
    assert [session["name"] for session in made] == ["study-1", "study-2", "study-3"]
    await ready.settle()
    assert set((await ready.states()).values()) == {"RUNNING"}


async def test_a_batch_comes_whole_or_not_at_all(ready: Cluster) -> None:
    await ready.submit("study-3")
    error = await refused(ready.admin.post(f"{V1}/sessions/batch", json=body("study", count=3)), 409)
    assert "a session study-3 already" in error["reason"]
    assert list(await ready.states()) == ["study-3"]
    error = await refused(ready.admin.post(f"{V1}/sessions/batch", json=body("a" * 19, count=3)), 422)
    assert error["where"] == "name"


async def test_two_of_three_shares_run_and_a_deletion_lets_the_third_run(cluster: Cluster) -> None:
    """The host gives two fGPU of half a GPU each."""
    await cluster.add_node(gpus=1)
    await cluster.add_image()
    await cluster.add_project("team-a", 2000)
    fgpu_milli = (await ok(cluster.admin.get(f"{V1}/settings")))["fgpu_milli"]
    await ok(cluster.admin.post(f"{V1}/sessions/batch", json=body("job", count=3, gpu_milli=fgpu_milli)))
    await cluster.settle()
    assert await cluster.states() == {"job-1": "RUNNING", "job-2": "RUNNING", "job-3": "PENDING"}
    waiting = await cluster.session("job-3")
    assert (waiting["cause"], waiting["position"]) == ("no-room", 1)
    await delete(cluster, "job-1")
    await cluster.settle()
    assert await cluster.states() == {"job-1": "TERMINATED", "job-2": "RUNNING", "job-3": "RUNNING"}


async def test_a_session_waits_for_its_start(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    tonight = (now() + timedelta(hours=8)).replace(second=30)
    session = await ready.submit("night", starts_at=tonight.isoformat())
    await ready.settle()
    session = await ready.session("night")
    assert (session["state"], session["cause"]) == ("PENDING", "not-due")
    assert session["reason"] == f"starts at {tonight:%Y-%m-%d %H:%M:%S} UTC"
    monkeypatch.setattr(loop, "now", lambda: tonight)
    await ready.settle()
    assert (await ready.session("night"))["state"] == "RUNNING"


async def test_a_start_that_has_just_passed_is_now(ready: Cluster) -> None:
    """The clock of who submits may be behind."""
    session = await run(ready, starts_at=(now() - timedelta(minutes=4)).isoformat())
    assert session["starts_at"] is None


@pytest.mark.parametrize(
    ("kind", "priority", "preemptible"), [("training", 50, True), ("interactive", 75, False), ("service", 75, False)]
)
async def test_what_is_usual_for_a_kind(ready: Cluster, kind: str, priority: int, preemptible: bool) -> None:
    session = await ready.submit("demo", kind=kind)
    assert (session["priority"], session["preemptible"]) == (priority, preemptible)


async def test_members_lower_a_priority_and_managers_raise_it(ready: Cluster) -> None:
    async with await ready.user("alice") as alice, await ready.user("boss") as boss:
        people = {"members": ["alice"], "managers": ["boss"]}
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json=people))
        error = await refused(alice.post(f"{V1}/sessions", json=body(priority=51)), 403)
        assert (error["where"], error["hint"]) == ("priority", "choose at most 50")
        await ok(alice.post(f"{V1}/sessions", json=body(priority=20)))
        change = f"{V1}/sessions/demo?project=team-a"
        await ok(alice.patch(change, json={"priority": 10}))
        await refused(alice.patch(change, json={"priority": 60}), 403)
        assert (await ok(boss.patch(change, json={"priority": 60})))["priority"] == 60
        await ready.settle()
        assert "its turn has come" in (await refused(boss.patch(change, json={"priority": 1}), 409))["reason"]


async def test_ports_get_addresses_until_the_session_ends(edged: Cluster) -> None:
    args = ["--NotebookApp.base_url=test-ingress"]
    session = await run(edged, "test-ingress", interactive=True, ports=[8888], args=args)
    assert session["url"] == "https://edge:9443/test-ingress/", "where an app that is told its address answers"
    assert session["urls"] == [session["url"]]
    assert edged.engine.specs[edged.container(session)[1]].ports == [8888]
    other = await edged.submit("test-ingress", project="team-b", ports=[8888])
    assert other["urls"] == ["https://edge:9443/team-b-test-ingress-8888/"]
    error = await refused(edged.admin.post(f"{V1}/sessions", json=body("third", ports=[1], args=args)), 409)
    assert error["where"] == "args"
    await delete(edged, "test-ingress")
    await edged.settle()
    assert (await edged.session("test-ingress"))["urls"] == []
    again = await edged.submit("test-ingress", ports=[8888], args=args)
    assert again["url"] == "https://edge:9443/test-ingress/"


async def test_folders_that_the_nodes_open(edged: Cluster) -> None:
    mounts = [{"source": "/mnt", "target": "/a"}, {"source": "/data", "target": "/data"}]
    session = await run(edged, volumes=mounts)
    spec = edged.engine.specs[edged.container(session)[1]]
    assert [(mount.source, mount.target, mount.read_only) for mount in spec.mounts] == [
        ("/mnt", "/a", False),
        ("/data", "/data", True),
    ]
    for source in ("/mntx", "/etc", "/mnt/a"):
        wrong = body("wrong", volumes=[{"source": source, "target": "/x"}])
        error = await refused(edged.admin.post(f"{V1}/sessions", json=wrong), 422)
        assert error["hint"] == "mount one of /mnt, /data"


async def test_an_image_that_is_on_the_node_already(ready: Cluster) -> None:
    session = await run(ready, image="tensorflow:20.01.0", local_image=True)
    spec = ready.engine.specs[ready.container(session)[1]]
    assert (spec.image, str(spec.pull)) == ("tensorflow:20.01.0", "never")


async def test_another_projects_image_is_not_found(ready: Cluster) -> None:
    await ready.add_project("team-b", 1000)
    image = {"name": "secret", "tag": "1", "reference": "reservoir:5000/secret:1", "projects": ["team-b"]}
    await ok(ready.admin.post(f"{V1}/images", json=image))
    assert (await refused(ready.admin.post(f"{V1}/sessions", json=body(image="secret")), 422))["where"] == "image"
    await ok(ready.admin.post(f"{V1}/sessions", json=body(project="team-b", image="secret")))


async def test_the_51st_session_is_refused_by_the_policy(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/user-policies", json={"name": "student", "max_sessions": 50}))
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/users/alice", json={"policy": "student"}))
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        await ok(alice.post(f"{V1}/sessions/batch", json=body("job", count=50, gpu_milli=50)))
        assert "student" in (await refused(alice.post(f"{V1}/sessions", json=body()), 409))["reason"]


async def test_a_project_outside_its_period_takes_nothing(ready: Cluster) -> None:
    over = {"starts_at": "2020-01-01T00:00:00Z", "ends_at": "2020-02-01T00:00:00Z"}
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"period": over}))
    assert "not active" in (await refused(ready.admin.post(f"{V1}/sessions", json=body()), 409))["reason"]


async def test_groups_that_others_use_are_refused(ready: Cluster) -> None:
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "v100", "nodes": ["worker1"]}))
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body(group="v100")), 422)
    assert error["where"] == "group"
    await ok(ready.admin.patch(f"{V1}/resource-groups/v100", json={"open": True}))
    assert (await run(ready, group="v100"))["group"] == "v100"


async def test_managers_extend_as_they_like_and_owners_as_far_as_the_project_lets_them(ready: Cluster) -> None:
    limits = {"interactive_limit_s": 3600, "interactive_extension_s": 600, "members": ["alice"]}
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json=limits))
        await ok(alice.post(f"{V1}/sessions", json=body(interactive=True)))
        extend = f"{V1}/sessions/demo/extend?project=team-a"
        assert "PENDING" in (await refused(alice.post(extend, json={"seconds": 1}), 409))["reason"]
        await ready.settle()
        before = (await ready.session("demo"))["expires_at"]
        assert before is not None
        after = await ok(alice.post(extend, json={"seconds": 400}))
        assert (after["expires_at"] > before, after["extended_s"]) == (True, 400)
        error = await refused(alice.post(extend, json={"seconds": 201}), 403)
        assert error["hint"] == "add at most 200 s"
        longer = await ok(ready.admin.post(extend, json={"seconds": 7200}))
        assert (longer["expires_at"] > after["expires_at"], longer["extended_s"]) == (True, 400)


async def test_a_session_without_a_limit_has_nothing_to_put_off(ready: Cluster) -> None:
    await run(ready)
    error = await refused(ready.admin.post(f"{V1}/sessions/demo/extend?project=team-a", json={"seconds": 1}), 409)
    assert error["reason"] == "session demo has no time limit"
    assert error["hint"] == "neither it nor its project sets one, so there is nothing to put off"


async def test_a_session_that_is_being_taken_back_can_be_deleted(ready: Cluster) -> None:
    session = await run(ready)
    async with ready.database.transaction() as db:
        from api.resources.sessions import service

        (row,) = await service.in_states(db, [State.RUNNING])
        assert await service.reclaim(db, row.id, row.revision, "reclaimed for team-b/x")
    await delete(ready)
    await ready.settle()
    assert (await ready.session("demo"))["state"] == "TERMINATED"
    assert session["attempt"] == 0


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"starts_at": "2026-11-30T08:00:00"}, "write one such as 2026-11-30T08:00:00+09:00"),
        ({"replicas": 3, "max_replicas": 2}, "write 3 or more, or start with fewer"),
    ],
)
async def test_a_hint_says_what_would_do(ready: Cluster, wrong: dict[str, Any], hint: str) -> None:
    answer = await refused(ready.admin.post(f"{V1}/sessions", json=body(**wrong)), 422)
    assert answer["hint"] == hint
