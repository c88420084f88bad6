"""Adoption: folders of before volumes had rows become volumes, of those to whom they belonged and of nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import delete as deletion
from sqlalchemy import update

from api.tables.projects import Project
from api.tables.sessions import Session
from api.tables.volumes import Volume
from tests.api.cluster import V1, Cluster, ok
from tests.api.resources.volumes.test_volumes import DATA, let_time_pass, source, volumes
from tests.api.steps import delete, run

pytestmark = pytest.mark.anyio


@pytest.fixture
async def old(ready: Cluster) -> Cluster:
    """A cluster whose project was there before volumes had rows, as the migration leaves it."""
    async with ready.database.transaction() as db:
        await db.execute(update(Project).values(named_folders=True))
    return ready


def told(found: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(row["name"], row["project"], row["former_project"], row["state"], row["folder"]) for row in found}


async def test_an_old_project_finds_its_folder_before_anybody_has_looked_for_it(old: Cluster) -> None:
    old.engine.without_storage = {"worker1"}
    assert source(old, await run(old, "one", pvcs=DATA)) == "/srv/shared/team-a/data"
    assert told(await volumes(old.admin)) == {("data", "team-a", "", "ready", "team-a/data")}


async def test_what_a_storage_has_becomes_volumes_where_it_is(old: Cluster) -> None:
    await run(old, "of-old", pvcs=[])
    await delete(old, "of-old")
    await old.settle()
    await ok(old.admin.delete(f"{V1}/projects/team-a"))
    await old.add_project("team-a", 4000)
    await old.add_project("team-b", 4000)
    async with old.database.transaction() as db:
        await db.execute(update(Project).where(Project.name == "team-b").values(named_folders=True))
    old.engine.folders = {"team-a/data", "team-b/data", "home/alice"}
    await let_time_pass(old)
    assert told(await volumes(old.admin)) == {
        ("data", None, "team-a", "retained", "team-a/data"),
        ("data", "team-b", "", "ready", "team-b/data"),
    }, "what is of the old team-a is not the new one's, and what is nobody's project is left alone"
    await let_time_pass(old)
    assert len(await volumes(old.admin)) == 2


async def test_folders_that_were_looked_for_leave_ids_for_the_new_ones(old: Cluster) -> None:
    old.engine.folders = {"team-a/data"}
    await let_time_pass(old)
    assert source(old, await run(old, "one", pvcs=DATA)) == "/srv/shared/team-a/data"
    other = await run(old, "two", pvcs=[{"name": "new", "target": "/data"}])
    assert source(old, other).count("/") == 3, "its id"


async def test_a_folder_that_is_not_mounted_says_nothing_of_what_is_missing(old: Cluster) -> None:
    old.engine.mounted = False
    await let_time_pass(old)
    assert source(old, await run(old, "one", pvcs=DATA)) == "/srv/shared/team-a/data"


async def test_sessions_of_before_the_upgrade_use_their_volumes(old: Cluster) -> None:
    session = await run(old, "one", pvcs=DATA)
    async with old.database.transaction() as db:
        # as they were: a path in the session, and no volume
        await db.execute(deletion(Volume))
        await db.execute(update(Session).values(mounts=[{"source": "/srv/shared/team-a/data", "target": "/data"}]))
    await let_time_pass(old)
    (volume,) = await volumes(old.admin)
    assert (volume["folder"], volume["sessions"]) == ("team-a/data", 1)
    assert source(old, session) == "/srv/shared/team-a/data"


async def test_a_handed_over_folder_is_not_found_by_its_name_any_more(old: Cluster) -> None:
    await old.add_project("team-b", 4000)
    session = await run(old, "one", pvcs=DATA)
    await delete(old, "one")
    await old.settle()
    (volume,) = await volumes(old.admin)
    await ok(old.admin.post(f"{V1}/volumes/{volume['id']}/hand-over", json={"project": "team-b"}))
    assert source(old, await run(old, "two", pvcs=DATA)) != source(old, session)


async def test_a_volume_that_a_restored_database_does_not_know_is_kept_and_handed_over(ready: Cluster) -> None:
    folder = "0b7d5a52-8f0e-4c0e-9a7e-3f1f6a2f7c11"
    ready.engine.folders = {folder, "backups-of-the-other-machine"}
    await let_time_pass(ready)
    found = await volumes(ready.admin)
    assert told(found) == {("found-0b7d5a52", None, "", "retained", folder)}, "what is called otherwise is not ours"
    await let_time_pass(ready)
    assert len(await volumes(ready.admin)) == 1
    new = {"project": "team-a", "name": "data"}
    await ok(ready.admin.post(f"{V1}/volumes/{found[0]['id']}/hand-over", json=new))
    assert source(ready, await run(ready, "one", pvcs=DATA)) == f"/srv/shared/{folder}"
