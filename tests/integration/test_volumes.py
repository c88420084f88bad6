"""Volumes on a real storage: an API process, a real agent and Docker; folders of before volumes had rows too."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest
from alembic import command
from sqlalchemy import Connection, insert, text

from api.clock import now
from api.database import Database
from api.migrations import schema
from api.tables.accounting import Span
from appliance.agent.storages import MARKER
from tests.integration.agent.conftest import (
    Authority,
    authority,  # noqa: F401
    image,  # noqa: F401
)
from tests.integration.test_api_agent import V1, Site
from tests.postgresql import new_database

LONGEST_S = 60


async def before_volumes(url: str) -> None:
    """Make the database of a site before volumes had rows: with a project, and one of which only accounting knows."""
    database = Database(url)

    def fill(connection: Connection) -> None:
        command.upgrade(schema.config(connection), "0014")
        project = (
            "INSERT INTO projects (id, name, description, quota_milli, created_at) VALUES (:id, :name, '', 2000, :at)"
        )
        connection.execute(text(project), {"id": uuid4(), "name": "veteran", "at": now()})
        ids = {name: uuid4() for name in ("session_id", "user_id", "project_id")}
        names = {"session_name": "s", "user_name": "ada", "project_name": "gone"}
        connection.execute(insert(Span).values(**ids, **names, gpu_milli=0, started_at=now(), ended_at=now()))

    async with database.engine.begin() as connection:
        await connection.run_sync(fill)
    await database.close()


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def site(
    authority: Authority,  # noqa: F811
    image: str,  # noqa: F811
    engine: docker.DockerClient,
    postgresql_server: Path,
    storage: Path,
) -> Iterator[Site]:
    """A site that is upgraded: its storage has files of before, of a project that is there and of one that is gone."""
    url = new_database(postgresql_server)
    asyncio.run(before_volumes(url))
    running = Site(authority, url, storage)
    root = storage / "volumes"
    running.environment |= {"PENSTOCK_API_PVC_ROOT": str(root), "PENSTOCK_API_PVC_STORAGE": "disk"}
    running.environment["PENSTOCK_API_STORAGES"] = json.dumps({"disk": str(root)})
    running.agent.environment["PENSTOCK_AGENT_STORAGES"] = json.dumps({"disk": str(root)})
    running.agent.environment["PENSTOCK_AGENT_STORAGE_IDS"] = json.dumps({"disk": "one"})
    (root / MARKER).write_text("one\n")
    for path, said in {"veteran/data": "kept", "gone/models": "weights", "stranger/home": "nobody's"}.items():
        (root / path).mkdir(parents=True)
        (root / path / "file").write_text(said)
    with running.serving(image, engine):
        yield running


def add_project(site: Site, name: str) -> None:
    site.call("POST", "/projects", {"name": name, "quota_milli": 2000, "period": {"ends_at": None}})


def printed(site: Site, project: str, volume: str, script: str) -> str:
    """Return what a session prints that has a volume at /data."""
    name = f"s-{uuid4().hex[:8]}"
    body: dict[str, Any] = {"name": name, "project": project, "image": "busybox", "gpu_milli": 500}
    body |= {"command": ["sh", "-c", script], "pvcs": [{"name": volume, "target": "/data"}]}
    site.call("POST", "/sessions", body)
    ended = ("TERMINATED", "FAILED")
    site.until(lambda: site.get(f"/sessions/{name}", project=project)["state"] in ended)
    log = site.client.get(f"{V1}/sessions/{name}/logs", params={"project": project})
    return log.text


def volume(site: Site, project: str, name: str) -> dict[str, Any]:
    return dict(site.get(f"/volumes/{name}", project=project))


def test_a_project_made_anew_by_an_old_name_does_not_see_the_old_ones_files(site: Site, storage: Path) -> None:
    add_project(site, "secret")
    printed(site, "secret", "data", "echo mine > /data/file")
    old = volume(site, "secret", "data")
    assert (storage / "volumes" / old["id"] / "file").read_text() == "mine\n", "its folder bears its id"
    site.call("DELETE", "/projects/secret", volumes="keep")
    add_project(site, "secret")
    assert printed(site, "secret", "data", "cat /data/file 2>/dev/null; echo nothing") == "nothing\n"
    assert "mine" not in printed(site, "secret", "data", "cat /data/file")
    add_project(site, "heir")
    site.call("POST", f"/volumes/{old['id']}/hand-over", {"project": "heir"})
    assert printed(site, "heir", "data", "cat /data/file") == "mine\n", "nothing was lost"


def test_folders_of_before_become_volumes_where_they_are(site: Site) -> None:
    adopted = site.until(lambda: site.get("/volumes", project="veteran"))
    assert [(row["name"], row["folder"], row["state"]) for row in adopted] == [("data", "veteran/data", "ready")]
    assert printed(site, "veteran", "data", "cat /data/file") == "kept"
    (retained,) = [row for row in site.get("/volumes", state="retained") if row["former_project"] == "gone"]
    assert (retained["name"], retained["project"]) == ("models", None)
    add_project(site, "gone")
    assert "weights" not in printed(site, "gone", "models", "cat /data/file")
    site.call("POST", f"/volumes/{retained['id']}/hand-over", {"project": "veteran"})
    assert printed(site, "veteran", "models", "cat /data/file") == "weights"
    assert "stranger" not in {row["former_project"] for row in site.get("/volumes")}, "nobody's project"


def test_the_files_of_a_deleted_volume_go_even_where_the_agent_is_killed(site: Site, storage: Path) -> None:
    add_project(site, "short")
    printed(site, "short", "data", "echo x > /data/file")
    folder = storage / "volumes" / volume(site, "short", "data")["id"]
    for number in range(200):
        (folder / f"{number}").mkdir()
        for inner in range(100):
            (folder / f"{number}" / f"{inner}").touch()
    outside = storage / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    (folder / "link").symlink_to(outside)
    site.call("DELETE", "/volumes/data", project="short")
    time.sleep(0.3)
    assert site.agent.process is not None
    site.agent.process.send_signal(signal.SIGKILL)
    site.agent.process.wait(60)
    site.agent.start()
    site.until(lambda: not folder.exists(), LONGEST_S)
    site.until(lambda: site.get("/volumes", project="short") == [], LONGEST_S)
    assert (outside / "file").read_text() == "stays", "no link was followed"


def test_storage_that_went_is_neither_empty_nor_written_in_its_place(site: Site, storage: Path) -> None:
    """As where it is not mounted, its root is a folder without the marker."""
    add_project(site, "patient")
    printed(site, "patient", "data", "echo mine > /data/file")
    folder = storage / "volumes" / volume(site, "patient", "data")["id"]
    (storage / "volumes").rename(storage / "away")
    (storage / "volumes").mkdir()
    reason = "the storage disk is not mounted on this node"
    site.until(lambda: site.get("/nodes/worker1")["missing_storages"] == {"disk": reason})
    body = {"name": "waits", "project": "patient", "image": "busybox", "gpu_milli": 500}
    body |= {"command": ["cat", "/data/file"], "pvcs": [{"name": "data", "target": "/data"}]}
    site.call("POST", "/sessions", body)
    site.until(lambda: "has the storage disk" in site.get("/sessions/waits", project="patient")["reason"])
    site.call("POST", "/volumes", {"name": "unused", "project": "patient"})
    site.call("DELETE", "/volumes/unused", project="patient")
    site.until(lambda: [row for row in site.get("/volumes", project="patient") if row["reason"]])
    assert list((storage / "volumes").iterdir()) == []
    (storage / "volumes").rmdir()
    (storage / "away").rename(storage / "volumes")
    site.until(lambda: site.get("/sessions/waits", project="patient")["state"] == "TERMINATED")
    assert (folder / "file").read_text() == "mine\n"
    site.until(lambda: [row["name"] for row in site.get("/volumes", project="patient")] == ["data"], LONGEST_S)


def test_sizes_are_counted(site: Site, storage: Path) -> None:
    adopted = site.until(lambda: [row for row in site.get("/volumes") if row["measured_at"]])
    assert {row["used_mib"] for row in adopted} == {0}
    assert {row["limit_mib"] for row in adopted} == {None}
