"""The commands of users, policies, domains, API keys and accounting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.cli import output
from tests.unit.appliance.cli.conftest import FakeApi, Run
from tests.unit.appliance.cli.samples import api_key, domain, policy, user


def test_users_golden(logged_in: FakeApi, run: Run) -> None:
    users = [user(), user(name="bob", role="admin", domain="physics", policy="guests", disabled=True)]
    logged_in.on("GET", "/users", users)
    assert run("user", "list")[1] == (
        "NAME   ROLE    DOMAIN   POLICY  STATUS    CREATED\n"
        "alice  member  -        -       active    3h\n"
        "bob    admin   physics  guests  disabled  3h\n"
    )
    assert json.loads(run("user", "list", "-o", "json")[1]) == users
    logged_in.on("GET", "/users/alice", user(must_change_password=True))
    assert "has to be changed\n" in run("user", "get", "alice")[1]
    logged_in.on("GET", "/users/alice", user(source="ldap", role_source="ldap", directory_id="entry-7"))
    shown = run("user", "get", "alice")[1]
    assert "Role given by:   ldap\n" in shown
    assert "Directory entry: entry-7\n" in shown


def test_a_user_is_created(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/users", user(), status=201)
    assert run("user", "create", "alice", "--password-stdin", stdin="pass word\n")[1] == "Created member alice.\n"
    assert logged_in.last.body == {"name": "alice", "password": "pass word", "role": "member"}
    options = ("--role", "auditor", "--domain", "physics", "--policy", "guests", "--must-change-password")
    run("user", "create", "alice", *options, "--password-stdin", stdin="x\n")
    assert logged_in.last.body == {
        "name": "alice",
        "password": "x",
        "role": "auditor",
        "domain": "physics",
        "policy": "guests",
        "must_change_password": True,
    }


@pytest.mark.parametrize(
    ("command", "body"),
    [
        (("update", "alice", "--role", "admin"), {"role": "admin"}),
        (("update", "alice", "--role-source", "ldap"), {"role_source": "ldap"}),
        (("unbind", "alice"), {"directory_id": None}),
        (("update", "alice", "--policy", "none", "--domain", "physics"), {"policy": None, "domain": "physics"}),
        (("disable", "alice"), {"disabled": True}),
        (("enable", "alice"), {"disabled": False}),
    ],
)
def test_a_user_is_changed(logged_in: FakeApi, run: Run, command: tuple[str, ...], body: Any) -> None:
    logged_in.on("PATCH", "/users/alice", user())
    assert run("user", *command)[0] == 0
    assert logged_in.last.body == body


def test_passwords_logins_and_the_end_of_a_user(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("PUT", "/users/alice/password", user())
    assert run("user", "password", "alice", "--password-stdin", stdin="new\n")[0] == 0
    assert logged_in.last.body == {"password": "new"}
    logged_in.on("DELETE", "/users/alice/logins", {"done": True})
    assert run("user", "logout", "alice")[1] == "User alice is signed out.\n"
    logged_in.on("DELETE", "/users/alice", {"done": True})
    assert run("user", "delete", "alice")[1] == "Deleted user alice.\n"


def test_policies(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/user-policies", [policy()])
    assert run("policy", "list")[1] == (
        "NAME    SESSIONS  GPUs  CPUs      MEMORY  DESCRIPTION\nguests  2         1.5   no limit  64.0G\n"
    )
    logged_in.on("POST", "/user-policies", policy(), status=201)
    assert run("policy", "create", "guests", "--sessions", "2", "-g", "1.5", "--memory", "64G")[0] == 0
    assert logged_in.last.body == {
        "name": "guests",
        "max_sessions": 2,
        "max_gpu_milli": 1500,
        "max_memory_mib": 65536,
    }
    logged_in.on("PATCH", "/user-policies/guests", policy())
    assert run("policy", "update", "guests", "--sessions", "none", "--cpu", "8")[0] == 0
    assert logged_in.last.body == {"max_sessions": None, "max_cpu_milli": 8000}
    assert run("policy", "update", "guests", "--sessions", "few")[0] == 2
    logged_in.on("DELETE", "/user-policies/guests", {"done": True})
    assert run("policy", "delete", "guests")[1] == "Deleted policy guests.\n"


def test_domains(logged_in: FakeApi, run: Run) -> None:
    logged_in.on(
        "GET",
        "/domains",
        [
            domain(description="the third floor"),
            domain(quota_milli=2500, policy="one", shares=True),
            domain(quota_milli=2500, shares=True, over_quota_weight=3, limit_milli=4000),
            domain(shares=True, over_quota_weight=0),
        ],
    )
    assert run("domain", "list")[1] == (
        "NAME     GPUS  SHARES             POLICY  DESCRIPTION      CREATED\n"
        "physics  -     -                  -       the third floor  3h\n"
        "physics  2.5   yes                one                      3h\n"
        "physics  2.5   weight 3, up to 4  -                        3h\n"
        "physics  -     weight 0           -                        3h\n"
    )
    logged_in.on("PATCH", "/domains/physics", domain(quota_milli=2500))
    assert run("domain", "update", "physics", "--gpus", "2.5")[1] == "Changed domain physics.\n"
    assert logged_in.last.body == {"quota_milli": 2500}
    run("domain", "update", "physics", "--gpus", "none", "--description", "the fourth floor")
    assert logged_in.last.body == {"quota_milli": None, "description": "the fourth floor"}
    run("domain", "update", "physics", "--shares", "--weight", "3", "--limit", "4")
    assert logged_in.last.body == {"shares": True, "over_quota_weight": 3, "limit_milli": 4000}
    run("domain", "update", "physics", "--weight", "quota")
    assert logged_in.last.body == {"over_quota_weight": None}
    run("domain", "update", "physics", "--no-shares", "--limit", "none")
    assert logged_in.last.body == {"shares": False, "limit_milli": None}
    for name, sent in (("one", "one"), ("none", None)):
        run("domain", "update", "physics", "--policy", name)
        assert logged_in.last.body == {"policy": sent}
    logged_in.on("POST", "/domains", domain(), status=201)
    assert run("domain", "create", "physics", "--policy", "one")[1] == "Created domain physics.\n"
    assert logged_in.last.body == {"name": "physics", "policy": "one"}
    run("domain", "create", "physics", "--gpus", "2.5", "--shares", "--weight", "3", "--limit", "4")
    shares = {"shares": True, "over_quota_weight": 3, "limit_milli": 4000}
    assert logged_in.last.body == {"name": "physics", "quota_milli": 2500, **shares}
    logged_in.on("DELETE", "/domains/physics", {"done": True})
    assert run("domain", "delete", "physics")[1] == "Deleted domain physics.\n"


def test_api_keys(logged_in: FakeApi, run: Run) -> None:
    keys = [api_key(), api_key(id="key-8", name="night", scope="read", used_at=None, expires_at="2027-01-02T00:00:00Z")]
    logged_in.on("GET", "/api-keys", keys)
    assert run("apikey", "list")[1] == (
        "ID     NAME   BEGINS WITH  SCOPE  CREATED  USED   EXPIRES\n"
        "key-7  ci     pk_ab        all    3h       3h     never\n"
        "key-8  night  pk_ab        read   3h       never  2027-01-02\n"
    )
    logged_in.on("POST", "/api-keys", {**api_key(), "key": "pk_abcdef"}, status=201)
    assert run("apikey", "create", "ci", "--days", "30")[1] == "pk_abcdef\n"
    assert logged_in.last.body == {"name": "ci", "days": 30}
    run("apikey", "create", "ci", "--scope", "submit")
    assert logged_in.last.body == {"name": "ci", "scope": "submit"}
    assert run("apikey", "create", "ci", "--scope", "write")[0] == 2
    logged_in.on("DELETE", "/api-keys/key-7", {"done": True, "with_it": 2})
    assert run("apikey", "revoke", "key-7")[1] == "Revoked key-7, and with it keys that it had made: 2.\n"
    logged_in.on("DELETE", "/api-keys/key-7", {"done": True, "with_it": 0})
    assert run("apikey", "revoke", "key-7")[1] == "Revoked key-7.\n"
    assert run("apikey", "revoke", "ci")[1] == "Revoked ci.\n"
    assert (logged_in.last.method, logged_in.last.path) == ("DELETE", "/api/v1/api-keys/key-7")
    code, _, err = run("apikey", "revoke", "day")
    assert (code, "there is no API key day" in err, "apikey list" in err) == (6, True, True)
    logged_in.on("GET", "/api-keys", [*keys, {**keys[1], "id": "key-9"}])
    code, _, err = run("apikey", "revoke", "night")
    assert (code, "key-8, key-9" in err) == (7, True)
    logged_in.on("GET", "/users/bob/api-keys", keys)
    assert run("apikey", "list", "--user", "bob")[0] == 0
    logged_in.on("DELETE", "/users/bob/api-keys/key-7", {"done": True, "with_it": 0})
    assert run("apikey", "revoke", "key-7", "--user", "bob")[0] == 0


def test_accounting(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    row = {"id": "1", "name": "team-a", "deleted": False}
    row |= {"sessions": 3, "session_seconds": 5400.0, "gpu_seconds": 10800.0}
    row |= {"covered_gpu_seconds": 5400.0, "busy_gpu_seconds": 1350.0, "cost": None}
    report: dict[str, Any] = {
        "starts_at": "2026-01-01T00:00:00+00:00",
        "ends_at": "2026-02-01T00:00:00+00:00",
        "by": "project",
        "currency": None,
        "rows": [row, {**row, "id": "0", "deleted": True}],
        "total": {**row, "name": ""},
    }
    logged_in.on("GET", "/accounting", report)
    options = ("--by", "project", "--from", "2026-01-01", "--until", "2026-01-31")
    assert run("accounting", *options)[1] == (
        "PROJECT           SESSIONS  HOURS  GPU HOURS  BUSY\n"
        "team-a            3         1.5    3.0        25% (of 50%)\n"
        "team-a (deleted)  3         1.5    3.0        25% (of 50%)\n"
        "all together      3         1.5    3.0        25% (of 50%)\n"
        "from 2026-01-01T00:00:00+00:00 until 2026-02-01T00:00:00+00:00\n"
    )
    assert logged_in.last.query == {
        "starts_at": "2026-01-01T00:00:00+00:00",
        "ends_at": "2026-02-01T00:00:00+00:00",
        "by": "project",
    }
    assert json.loads(run("accounting", "-o", "json")[1]) == report
    unknown = row | {"covered_gpu_seconds": 0.0, "busy_gpu_seconds": 0.0, "cost": "7.50"}
    logged_in.on("GET", "/accounting", report | {"currency": "EUR", "rows": [unknown], "total": unknown})
    assert run("accounting", "--by", "project")[1].splitlines()[:2] == [
        "PROJECT       SESSIONS  HOURS  GPU HOURS  BUSY  COST EUR",
        "team-a        3         1.5    3.0        -     7.50",
    ]


def test_what_the_gpus_of_the_site_did(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    known = {"seconds": 3600, "gpu_milli": 8000, "held_milli": 4000, "covered_milli": 2000, "busy_milli": 500}
    found = {
        "starts_at": "2026-01-01T00:00:00+00:00",
        "ends_at": "2026-01-01T02:00:00+00:00",
        "step_s": 3600,
        "steps": [known, known | {"gpu_milli": None, "covered_milli": 0, "busy_milli": 0}],
    }
    logged_in.on("GET", "/accounting/utilization", found)
    assert run("accounting", "--utilization", "--steps", "2")[1].splitlines() == [
        "FROM                       GPUS  HELD  BUSY  BUSY OF HELD",
        "2026-01-01T00:00:00+00:00  8     4     0.5   25% (of 50%)",
        "2026-01-01T01:00:00+00:00  -     4     -     -",
    ]
    assert logged_in.last.query["points"] == "2"
    code, *_, said = run("accounting", "--utilization", "--waits")
    assert (code, "--utilization" in said) == (2, True)


def test_what_was_held_over_time(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    series = {"id": "1", "deleted": False}
    timeline = {
        "starts_at": "2026-01-01T00:00:00+00:00",
        "ends_at": "2026-01-01T02:00:00+00:00",
        "by": "project",
        "step_s": 3600,
        "series": [{**series, "name": "a", "gpu_milli": [500, 1000]}, {**series, "name": "", "gpu_milli": [0, 2500]}],
    }
    logged_in.on("GET", "/accounting/timeline", timeline)
    assert run("accounting", "--by", "project", "--steps", "2")[1].splitlines() == [
        "FROM                       a    the site itself",
        "2026-01-01T00:00:00+00:00  0.5  0",
        "2026-01-01T01:00:00+00:00  1    2.5",
    ]
    assert logged_in.last.query["points"] == "2"


def test_how_long_was_waited(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    figures = {"count": 3, "median_s": 30.2, "p95_s": 5400.0, "longest_s": 90061.0}
    none = {"count": 0, "median_s": None, "p95_s": None, "longest_s": None}
    row = {"id": "1", "name": "team-a", "deleted": False, "waiting": 2, "oldest_s": 60.0}
    waits = {
        "starts_at": "2026-01-01T00:00:00+00:00",
        "ends_at": "2026-01-01T02:00:00+00:00",
        "by": "project",
        "step_s": 3600,
        "rows": [{**row, **figures}],
        "total": {**row, **none, "name": "total", "waiting": 0, "oldest_s": None},
        "steps": [figures, none],
    }
    logged_in.on("GET", "/accounting/waits", waits)
    assert run("accounting", "--waits", "--by", "project")[1].splitlines() == [
        "PROJECT       STARTS  MEDIAN  95 %    LONGEST      WAITING NOW  OLDEST",
        "team-a        3       30s     1h 30m  1d 1h 1m 1s  2            1m",
        "all together  0       -       -       -            0            -",
        "from 2026-01-01T00:00:00+00:00 until 2026-01-01T02:00:00+00:00",
    ]
    assert run("accounting", "--waits", "--by", "project", "--steps", "2")[1].splitlines() == [
        "FROM                       STARTS  MEDIAN  95 %    LONGEST",
        "2026-01-01T00:00:00+00:00  3       30s     1h 30m  1d 1h 1m 1s",
        "2026-01-01T01:00:00+00:00  0       -       -       -",
    ]
    assert logged_in.last.query["points"] == "2"
