"""What a session shows of itself: what it mounts, which variables it has, and how it ended."""

from __future__ import annotations

import pytest

from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.api.steps import run

pytestmark = pytest.mark.anyio


async def test_mounts_and_the_names_of_variables_are_shown(ready: Cluster) -> None:
    session = await run(
        ready,
        environment={"TOKEN": "secret", "EPOCHS": "3"},
        pvcs=[{"name": "data", "target": "/data", "read_only": True}],
    )
    assert session["environment"] == ["EPOCHS", "TOKEN"]
    assert session["mounts"] == [{"volume": "data", "source": None, "target": "/data", "read_only": True}]
    answer = await ready.admin.get(f"{V1}/sessions/demo", params={"project": "team-a"})
    assert "secret" not in answer.text
    assert "/srv/shared" not in answer.text


async def test_folders_of_the_node_are_shown_as_they_were_asked_for(database_url: str) -> None:
    async with running_cluster(database_url, host_paths=("/mnt",)) as cluster:
        await cluster.add_node()
        await cluster.add_image()
        await cluster.add_project()
        session = await run(cluster, volumes=[{"source": "/mnt", "target": "/mnt"}])
    assert session["mounts"] == [{"volume": None, "source": "/mnt", "target": "/mnt", "read_only": False}]


async def test_lists_have_neither(ready: Cluster) -> None:
    await run(ready, environment={"TOKEN": "secret"})
    (entry,) = await ok(ready.admin.get(f"{V1}/sessions", params={"project": "team-a"}))
    assert not {"environment", "mounts"} & set(entry)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("interactive", "its command has ended; one that stays keeps it, such as `--command sleep --args infinity`"),
        ("service", "its command has ended; a service needs one that stays"),
        ("training", ""),
    ],
)
async def test_what_ends_by_itself_says_so_where_that_is_not_what_it_is_for(
    ready: Cluster, kind: str, reason: str
) -> None:
    session = await run(ready, kind=kind)
    ready.exit_container(session, 0)
    await ready.heartbeat()
    await ready.settle()
    ended = await ready.session("demo")
    assert (ended["state"], ended["reason"], ended["exit_code"]) == ("TERMINATED", reason, 0)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (137, "it was killed (signal 9, SIGKILL)"),
        (143, "it was killed (signal 15, SIGTERM)"),
        (139, "it was killed (signal 11, SIGSEGV)"),
        (3, "its command ended with exit code 3"),
        (255, "its command ended with exit code 255"),
    ],
)
async def test_what_a_signal_has_ended_says_so(ready: Cluster, code: int, reason: str) -> None:
    session = await run(ready)
    ready.exit_container(session, code)
    await ready.heartbeat()
    await ready.settle()
    ended = await ready.session("demo")
    assert (ended["state"], ended["reason"], ended["exit_code"]) == ("FAILED", reason, code)


async def test_what_was_reclaimed_keeps_a_word_of_it(ready: Cluster) -> None:
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"quota_milli": 2000}))
    await ready.add_project("team-b", 2000)
    mine = await run(ready, gpu_milli=4000)
    await ready.submit("owed", 1000, "team-b")
    await ready.settle()
    waiting = await ready.session("demo")
    assert waiting["state"] == "PENDING"
    assert waiting["interrupted"].startswith("reclaimed for a session of another project")
    assert waiting["interrupted_at"] > mine["started_at"]
    deleted = await ok(ready.admin.delete(f"{V1}/sessions/demo", params={"project": "team-a"}))
    assert (deleted["state"], deleted["reason"]) == ("TERMINATED", "deleted")
