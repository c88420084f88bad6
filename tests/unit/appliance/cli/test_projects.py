"""The commands of projects and resource groups."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.cli import config, output
from tests.unit.appliance.cli.conftest import FakeApi, Run
from tests.unit.appliance.cli.samples import group, project


def test_set_asks_whether_it_exists_and_remembers_it(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/projects/team-b", project(name="team-b"))
    assert run("project", "set", "team-b") == (0, "Current project: team-b\n", "")
    assert config.load().project == "team-b"
    logged_in.refuse("GET", "/projects/nobody", 404, "name", "there is no project nobody", "look")
    assert run("project", "set", "nobody")[0] == 6
    assert config.load().project == "team-b"


def test_list_golden(logged_in: FakeApi, run: Run) -> None:
    ended = {"starts_at": "2026-01-02T03:04:05+00:00", "ends_at": "2026-03-01T00:00:00+00:00"}
    projects = [
        project(managers=["carol"], training_group="v100"),
        project(name="b", quota_milli=16000, used_milli=0, members=[], over_quota=False, period=ended, active=False),
        project(name="c", over_quota_weight=3, interactive_group="small"),
        project(name="d", over_quota_weight=0),
    ]
    logged_in.on("GET", "/projects", projects)
    assert run("project", "list")[1] == (
        "   NAME    GPUs  IN USE  OVER-QUOTA  UNTIL                    TRAINING ON  INTERACTIVE ON  MEMBERS            "
        "CREATED\n"
        "*  team-a  1     0.5     yes         never                    v100         -               carol, alice, bob  "
        "3h\n"
        "   b       16    0       no          2026-03-01 (not active)  -            -               -                  "
        "3h\n"
        "   c       1     0.5     weight 3    never                    -            small           alice, bob         "
        "3h\n"
        "   d       1     0.5     weight 0    never                    -            -               alice, bob         "
        "3h\n"
    )
    assert json.loads(run("project", "list", "-o", "json")[1]) == projects


def test_get_golden(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    limits = {"interactive_limit_s": 7200, "interactive_extension_s": 3600, "limit_milli": 2500}
    logged_in.on("GET", "/projects/team-a", project(**limits))
    assert run("project", "get", "team-a")[1].splitlines()[1:-1] == [
        "GPUs:              1",
        "In use:            0.5",
        "Over-quota:        yes, up to 2.5",
        "From:              2026-01-02T03:04:05+00:00",
        "Until:             never",
        "Active:            yes",
        "At the end:        sessions are stopped",
        "Members:           alice, bob",
        "Interactive limit: 2h",
        "Extension:         1h in total",
        "Session access:    project",
    ]


def test_quotas_of_cpu_and_memory_are_shown(logged_in: FakeApi, run: Run) -> None:
    quotas = {"cpu_quota_milli": 2500, "cpu_limit_milli": 4000, "memory_quota_mib": 2048}
    logged_in.on("GET", "/projects/team-a", project(**quotas))
    lines = run("project", "get", "team-a")[1].splitlines()
    assert "CPUs:           2.5, up to 4" in lines
    assert "Memory:         2.0G" in lines


def test_create_sends_every_option(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/projects", project(warnings=["the quotas come to 9 of 8 GPUs"]), status=201)
    code, out, err = run(
        *("project", "create", "team-a", "--gpus", "2.5", "--member", "alice", "--member", "bob", "--manager", "carol"),
        *("--from", "2027-01-01", "--until", "2027-12-31", "--no-over-quota", "--weight", "3", "--on-expiry", "finish"),
        *("--training-group", "v100", "--interactive-group", "small", "--interactive-limit", "2h"),
        *("--interactive-extension", "30m", "--domain", "physics", "--description", "x"),
        *("--session-access", "private"),
    )
    assert (code, err) == (0, "warning: the quotas come to 9 of 8 GPUs\n")
    assert "GPUs:           1\n" in out
    assert logged_in.last.body == {
        "name": "team-a",
        "period": {"starts_at": "2027-01-01T00:00:00+00:00", "ends_at": "2028-01-01T00:00:00+00:00"},
        "quota_milli": 2500,
        "members": ["alice", "bob"],
        "managers": ["carol"],
        "over_quota": False,
        "over_quota_weight": 3,
        "on_expiry": "finish",
        "training_group": "v100",
        "interactive_group": "small",
        "interactive_limit_s": 7200,
        "interactive_extension_s": 1800,
        "session_access": "private",
        "domain": "physics",
        "description": "x",
    }


def test_create_needs_no_more_than_a_quota(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/projects", project(), status=201)
    assert run("project", "create", "team-a", "-g", "1")[0] == 0
    assert logged_in.last.body == {"name": "team-a", "period": {"ends_at": None}, "quota_milli": 1000}


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (("--gpus", "0"), {"quota_milli": 0}),
        (("--over-quota",), {"over_quota": True}),
        (("--training-group", "none"), {"training_group": None}),
        (("--member", "none"), {"members": []}),
        (
            ("--add-member", "bob", "--add-member", "eve", "--remove-member", "ada"),
            {"add_members": ["bob", "eve"], "remove_members": ["ada"]},
        ),
        (
            ("--add-manager", "bob", "--remove-manager", "ada"),
            {"add_managers": ["bob"], "remove_managers": ["ada"]},
        ),
        (("--session-access", "private"), {"session_access": "private"}),
        (("--limit", "2.5"), {"limit_milli": 2500}),
        (("--limit", "none"), {"limit_milli": None}),
        (("--weight", "3"), {"over_quota_weight": 3}),
        (("--weight", "0"), {"over_quota_weight": 0}),
        (("--weight", "quota"), {"over_quota_weight": None}),
        (("--cpus", "2.5", "--cpu-limit", "4"), {"cpu_quota_milli": 2500, "cpu_limit_milli": 4000}),
        (("--memory", "2G", "--memory-limit", "none"), {"memory_quota_mib": 2048, "memory_limit_mib": None}),
        (("--min-runtime", "30m"), {"min_runtime_s": 1800}),
        (("--min-runtime", "site"), {"min_runtime_s": None}),
        (
            ("--until", "never"),
            {"period": {"starts_at": "2026-01-02T03:04:05+00:00", "ends_at": None}},
        ),
        (
            ("--from", "2026-02-01"),
            {"period": {"starts_at": "2026-02-01T00:00:00+00:00", "ends_at": None}},
        ),
    ],
)
def test_update_changes_what_is_named(logged_in: FakeApi, run: Run, options: tuple[str, ...], body: Any) -> None:
    logged_in.on("GET", "/projects/team-a", project())
    logged_in.on("PATCH", "/projects/team-a", project())
    assert run("project", "update", "team-a", *options)[0] == 0
    assert logged_in.last.body == body


@pytest.mark.parametrize(
    "options",
    [
        ("--gpus", "many"),
        ("--weight", "much"),
        ("--weight", "-1"),
        ("--until", "soon"),
        ("--interactive-limit", "long"),
        ("--on-expiry", "never"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(
    logged_in: FakeApi, run: Run, options: tuple[str, ...]
) -> None:
    code, out, err = run("project", "create", "team-b", "-g", "1", *options)
    assert (code, out) == (2, "")
    assert options[0] in err
    assert not logged_in.calls


def test_delete_forgets_the_current_one(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("DELETE", "/projects/team-a", {"done": True})
    assert run("project", "delete", "team-a") == (0, "Deleted project team-a.\n", "")
    assert config.load().project == ""


def test_groups_golden(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [group(), group(name="all", gpu_model="", switch="leaf-1", region="room-1", open=True, purpose="")]
    logged_in.on("GET", "/resource-groups", groups)
    assert run("group", "list")[1] == (
        "NAME  NODES  ALL WITH                      FOR            PURPOSE\n"
        "v100  2      GPU V100                      alice, team-b  training\n"
        "all   2      switch leaf-1, region room-1  everybody      -\n"
    )
    assert json.loads(run("group", "list", "-o", "json")[1]) == groups
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    logged_in.on("GET", "/resource-groups/v100", group(nodes=["worker2"], created_at="x"))
    assert run("group", "get", "v100")[1] == (
        "Name:        v100\n"
        "Purpose:     training\n"
        "Nodes:       worker1, worker2\n"
        "Named nodes: worker2\n"
        "All with:    GPU V100\n"
        "For:         those named\n"
        "Users:       alice\n"
        "Projects:    team-b\n"
        "Created:     x\n"
    )


def test_a_group_is_created_changed_and_deleted(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/resource-groups", group(), status=201)
    assert (
        run("group", "create", "v100", "--gpu-model", "V100", "--node", "worker1", "--user", "alice", "--closed")[0]
        == 0
    )
    assert logged_in.last.body == {
        "name": "v100",
        "gpu_model": "V100",
        "nodes": ["worker1"],
        "users": ["alice"],
        "open": False,
    }
    logged_in.on("PATCH", "/resource-groups/v100", group())
    assert run("group", "update", "v100", "--open", "--node", "none", "--project", "team-a")[0] == 0
    assert logged_in.last.body == {"open": True, "nodes": [], "projects": ["team-a"]}
    changes = [word for kind in ("node", "user", "project") for word in (f"--add-{kind}", "a", f"--remove-{kind}", "b")]
    assert run("group", "update", "v100", *changes)[0] == 0
    added = {f"add_{kind}s": ["a"] for kind in ("node", "user", "project")}
    assert logged_in.last.body == added | {f"remove_{kind}s": ["b"] for kind in ("node", "user", "project")}
    for written, domain in (("acme", "acme"), ("none", None)):
        assert run("group", "update", "v100", "--domain", written)[0] == 0
        assert logged_in.last.body == {"domain": domain}
    logged_in.on("DELETE", "/resource-groups/v100", {"done": True})
    assert run("group", "delete", "v100")[1] == "Deleted resource group v100.\n"


def test_allow_and_deny_change_who_may_use_a_group(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("PATCH", "/resource-groups/v100", group())
    assert run("group", "allow", "v100", "--user", "bob", "--project", "team-b")[0] == 0
    assert logged_in.last.body == {"add_users": ["bob"], "add_projects": ["team-b"]}
    assert run("group", "deny", "v100", "--user", "alice")[0] == 0
    assert logged_in.last.body == {"remove_users": ["alice"]}
