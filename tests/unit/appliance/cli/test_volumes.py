"""`penstock volume`, and what becomes of the volumes of a project that is deleted."""

from __future__ import annotations

import json

import pytest

from tests.unit.appliance.cli.conftest import FakeApi, Run
from tests.unit.appliance.cli.samples import volume

ID = volume()["id"]


def test_list_golden(logged_in: FakeApi, run: Run) -> None:
    volumes = [
        volume(sessions=2, limit_mib=10_240),
        volume(name="old", project=None, former_project="team-z", state="retained", used_mib=None),
        volume(name="going", state="deleting", reason="no node that has the storage answers", used_mib=7),
    ]
    logged_in.on("GET", "/volumes", volumes)
    assert run("volume", "list", "--all")[1] == (
        "NAME   PROJECT       STATE     SIZE           IN USE BY  AGE  ID\n"
        f"data   team-a        ready     2.0G of 10.0G  2          3h   {ID}\n"
        f"old    (was team-z)  retained  -              -          3h   {ID}\n"
        f"going  team-a        deleting  7M             -          3h   {ID}\n"
        "going is still there: no node that has the storage answers\n"
    )
    assert logged_in.last.query == {}
    assert json.loads(run("volume", "list", "-o", "json")[1]) == volumes
    assert logged_in.last.query == {"project": "team-a"}, "the current one"


def test_get_golden(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/volumes/data", volume(sessions=1))
    code, out, err = run("volume", "get", "data")
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith(("Name", "Size", "In use", "Folder"))] == [
        "Name:       data",
        f"Folder:     {ID}",
        "Size:       2.0G",
        "In use by:  1 live sessions",
    ]
    assert logged_in.last.query == {"project": "team-a"}


def test_create_is_for_a_project(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/volumes", volume(), status=201)
    assert run("volume", "create", "data", "-p", "team-b")[0] == 0
    assert logged_in.last.body == {"name": "data", "project": "team-b"}


def test_delete_says_that_the_files_go(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("DELETE", "/volumes/data", volume(state="deleting"), status=202)
    assert run("volume", "delete", "data") == (0, "data: its files are being deleted\n", "")


def test_what_was_kept_is_handed_over_by_its_id(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", f"/volumes/{ID}/hand-over", volume(project="team-b", name="old"))
    assert run("volume", "hand-over", ID, "team-b", "--as", "old") == (0, "old: of project team-b\n", "")
    assert (logged_in.last.query, logged_in.last.body) == ({}, {"project": "team-b", "name": "old"})


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ((), {}),
        (("--volumes", "keep"), {"volumes": "keep"}),
        (("--volumes", "hand-over", "--to", "team-b"), {"volumes": "hand-over", "to": "team-b"}),
    ],
)
def test_deleting_a_project_says_what_becomes_of_its_volumes(
    logged_in: FakeApi, run: Run, options: tuple[str, ...], query: dict[str, str]
) -> None:
    logged_in.on("DELETE", "/projects/team-b", {"done": True})
    assert run("project", "delete", "team-b", *options)[0] == 0
    assert logged_in.last.query == query
