"""The commands of projects, users, nodes and images."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from appliance.cli import config
from tests.unit.appliance.cli.conftest import FakeApi, Run

AGO = (datetime.now(UTC) - timedelta(hours=3, minutes=5)).isoformat()


def project(**changes: Any) -> dict[str, Any]:
    return {
        "name": "team-a",
        "description": "",
        "quota_milli": 1000,
        "used_milli": 500,
        "members": ["alice", "bob"],
        "created_at": AGO,
        **changes,
    }


def node(**changes: Any) -> dict[str, Any]:
    gpu = {"uuid": "SIM-1", "model": "Lab GPU", "memory_mib": 16384, "simulated": True}
    return {
        "name": "worker1",
        "address": "10.0.0.2",
        "port": 6001,
        "state": "ready",
        "agent_version": "0.1.0",
        "enforcement": "none",
        "cpu_milli": 2500,
        "memory_mib": 24064,
        "gpus": [{**gpu, "index": 0, "used_milli": 1000}, {**gpu, "index": 1, "used_milli": 250}],
        "last_seen": AGO,
        **changes,
    }


def test_project_set_asks_whether_it_exists_and_remembers_it(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/projects/team-b", project(name="team-b"))
    assert run("project", "set", "team-b") == (0, "Current project: team-b\n", "")
    assert config.load().project == "team-b"
    logged_in.refuse("GET", "/projects/nobody", 404, "name", "there is no project nobody", "look")
    assert run("project", "set", "nobody")[0] == 6
    assert config.load().project == "team-b"


def test_project_list_golden(logged_in: FakeApi, run: Run) -> None:
    projects = [project(), project(name="b", quota_milli=16000, used_milli=0, members=[])]
    logged_in.on("GET", "/projects", projects)
    assert run("project", "list")[1] == (
        "   NAME    GPUs  IN USE  MEMBERS     CREATED\n"
        "*  team-a  1     0.5     alice, bob  3h\n"
        "   b       16    0       -           3h\n"
    )
    assert json.loads(run("project", "list", "-o", "json")[1]) == projects


def test_project_create_update_and_delete(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/projects", project(), status=201)
    code, out, _ = run("project", "create", "team-a", "--gpus", "2.5", "--member", "alice", "--member", "bob")
    assert code == 0
    assert "GPUs:    1\n" in out
    assert logged_in.last.body == {
        "name": "team-a",
        "period": {"ends_at": None},
        "quota_milli": 2500,
        "members": ["alice", "bob"],
    }
    logged_in.on("PATCH", "/projects/team-a", project())
    assert run("project", "update", "team-a", "--gpus", "0")[0] == 0
    assert logged_in.last.body == {"quota_milli": 0}
    assert run("project", "update", "team-a", "--gpus", "many")[0] == 2
    logged_in.on("DELETE", "/projects/team-a", {"done": True})
    assert run("project", "delete", "team-a") == (0, "Deleted project team-a.\n", "")
    assert config.load().project == ""


def test_project_get_golden(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/projects/team-a", project(description="ResNet"))
    lines = run("project", "get", "team-a")[1].splitlines()
    assert lines[:5] == [
        "Name:        team-a",
        "Description: ResNet",
        "GPUs:        1",
        "In use:      0.5",
        "Members:     alice, bob",
    ]
    assert json.loads(run("project", "get", "team-a", "-o", "json")[1])["members"] == ["alice", "bob"]


def test_users(logged_in: FakeApi, run: Run) -> None:
    alice = {"name": "alice", "role": "member", "created_at": AGO}
    logged_in.on("GET", "/users", [alice])
    assert run("user", "list")[1] == "NAME   ROLE    CREATED\nalice  member  3h\n"
    assert json.loads(run("user", "list", "-o", "json")[1]) == [alice]
    logged_in.on("POST", "/users", alice, status=201)
    assert run("user", "create", "alice", "--password-stdin", stdin="pass word\n")[1] == "Created member alice.\n"
    assert logged_in.last.body == {"name": "alice", "password": "pass word", "role": "member"}
    run("user", "create", "alice", "--role", "admin", "--password-stdin", stdin="x\n")
    assert logged_in.last.body["role"] == "admin"
    logged_in.on("PUT", "/users/alice/password", {"done": True})
    assert run("user", "password", "alice", "--password-stdin", stdin="new\n")[0] == 0
    assert logged_in.last.body == {"password": "new"}
    logged_in.on("DELETE", "/users/alice", {"done": True})
    assert run("user", "delete", "alice")[1] == "Deleted user alice.\n"


def test_node_list_marks_simulated_gpus(logged_in: FakeApi, run: Run) -> None:
    bare = node(name="worker2", state="new", gpus=[], last_seen=None, cpu_milli=16000)
    logged_in.on("GET", "/nodes", [node(), bare])
    assert run("node", "list")[1] == (
        "NAME     STATUS  ADDRESS   CPUs  MEMORY  GPUs  IN USE  MODEL                SEEN\n"
        "worker1  Ready   10.0.0.2  2.5   23.5G   2     1.25    Lab GPU (simulated)  3h\n"
        "worker2  New     10.0.0.2  16    23.5G   0     0       -                    never\n"
    )
    assert json.loads(run("node", "list", "-o", "json")[1]) == [node(), bare]


def test_node_get_shows_each_gpu_and_how_shares_are_held(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/nodes/worker1", node())
    out = run("node", "get", "worker1")[1]
    assert "Enforcement: none\n" in out
    assert out.endswith(
        "\nGPU  UUID   MODEL                MEMORY     IN USE\n"
        "0    SIM-1  Lab GPU (simulated)  16384 MiB  1\n"
        "1    SIM-1  Lab GPU (simulated)  16384 MiB  0.25\n"
    )
    assert json.loads(run("node", "get", "worker1", "-o", "json")[1]) == node()


def test_images(logged_in: FakeApi, run: Run) -> None:
    image = {"name": "python", "tag": "3.11", "reference": "reservoir:5000/penstock/python:3.11", "created_at": AGO}
    logged_in.on("GET", "/images", [image])
    assert run("image", "list")[1] == (
        "IMAGE        REFERENCE                            CREATED\n"
        "python:3.11  reservoir:5000/penstock/python:3.11  3h\n"
    )
    assert json.loads(run("image", "list", "-o", "json")[1]) == [image]
    logged_in.on("POST", "/images", image, status=201)
    assert run("image", "create", "python:3.11", image["reference"])[0] == 0
    assert logged_in.last.body == {"name": "python", "tag": "3.11", "reference": image["reference"]}
    logged_in.on("DELETE", "/images/python:3.11", {"done": True})
    assert run("image", "delete", "python:3.11")[1] == "Deleted python:3.11.\n"


@pytest.mark.parametrize("image", ["python", "python:", ":3.11"])
def test_image_without_name_or_tag(logged_in: FakeApi, run: Run, image: str) -> None:
    code, _, err = run("image", "delete", image)
    assert code == 2
    assert "is not a name with a tag" in err
    assert not logged_in.calls
