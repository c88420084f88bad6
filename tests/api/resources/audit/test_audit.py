"""The audit log: every change and every refusal has a line, made together with the change, and nothing secret in it."""

from __future__ import annotations

import asyncio
import json
from ipaddress import IPv4Address
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from sqlalchemy import func, inspect, select, text, update

from api.auth.identity import Identity
from api.auth.policy import UserRole
from api.endpoints.access import SAFE_METHODS, action_of, is_for_agents
from api.endpoints.audit_log import AT_ONCE
from api.endpoints.auditing import DRY_RUNS, OF_A_MINUTE, tell_left_out
from api.endpoints.transactions import _transaction
from api.engine.base import UnreachableError
from api.resources.audit import service
from api.tables.audit import AUDITED, LEFT_OUT, NOT_AUDITED, AuditChange, AuditEvent
from api.tables.base import Base
from api.tables.nodes import Node
from common.interfaces import Interface
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.api.endpoints.routes import open_websocket
from tests.api.resources.audit.log import PROJECT, file_of, last, lines
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

BY_THEMSELVES = {"login", "end_unknown_containers", "delete_audit_file", "verify_certificate"}
"""Endpoints that change something and have no transaction from outside."""


async def test_a_change_says_who_did_what_to_what_before_and_after(audited: Cluster) -> None:
    await audited.add_project("vision", 1000)
    made = await last(audited, project="vision")
    assert (made["action"], made["object"], made["result"]) == ("project_create", "projects/vision", "done")
    await ok(audited.admin.patch(f"{V1}/projects/vision", json={"quota_milli": 3000, "description": "Seeing"}))
    line = await last(audited, object="projects/vision")
    assert (line["user"], line["role"], line["method"], line["status"]) == ("admin", "admin", "PATCH", 200)
    (change,) = line["changes"]
    assert change == {
        "kind": "projects",
        "subject": {"name": "vision"},
        "before": {"quota_milli": 1000, "description": ""},
        "after": {"quota_milli": 3000, "description": "Seeing"},
    }


async def test_who_comes_to_a_project_is_named(audited: Cluster) -> None:
    await audited.user("alice")
    await audited.add_project("vision", 1000)
    await ok(audited.admin.patch(f"{V1}/projects/vision", json={"members": ["alice"]}))
    (change,) = (await last(audited, object="projects/vision"))["changes"]
    assert (change["kind"], change["before"]) == ("memberships", None)
    assert change["subject"] == {"project": "vision", "user": "alice"}


async def test_the_interface_that_is_chosen_for_a_node_is_told(audited: Cluster) -> None:
    await audited.add_node("worker1")
    shown = Interface(name="eth2", addresses=[IPv4Address("10.1.0.1")])
    async with audited.database.transaction() as db:
        await db.execute(update(Node).values(interfaces=[shown.model_dump(mode="json")]))
    await ok(audited.admin.patch(f"{V1}/nodes/worker1", json={"interface": "eth2"}))
    (change,) = (await last(audited, object="nodes/worker1"))["changes"]
    assert (change["kind"], change["before"], change["after"]) == ("nodes", {"interface": ""}, {"interface": "eth2"})


async def test_the_request_of_a_line_is_that_of_the_answer(audited: Cluster) -> None:
    answer = await audited.admin.post(f"{V1}/projects", json=PROJECT)
    line = await last(audited, object="projects/vision")
    assert line["request"] == answer.headers["X-Request-Id"]


async def test_what_is_refused_and_what_fails_has_a_line(audited: Cluster) -> None:
    alice = await audited.user("alice")
    await audited.add_project("vision", 1000)
    await refused(alice.patch(f"{V1}/projects/vision", json={"quota_milli": 9000}), 403)
    await refused(alice.post(f"{V1}/users", json={"name": "mally", "password": PASSWORD}), 403)
    await refused(audited.admin.post(f"{V1}/projects", json=PROJECT), 409)
    assert (await audited.admin.post(f"{V1}/projects", json={"name": "Not A Name"})).status_code == 422
    await refused(alice.get(f"{V1}/users"), 403)
    told = [
        (line["user"], line["method"], line["object"], line["result"], line["status"]) for line in await lines(audited)
    ]
    assert told[:5] == [
        ("alice", "GET", "users", "refused", 403),
        ("admin", "POST", "projects", "failed", 422),
        ("admin", "POST", "projects", "failed", 409),
        ("alice", "POST", "users", "refused", 403),
        ("alice", "PATCH", "projects/vision", "refused", 403),
    ]
    assert all(line["reason"] for line in (await lines(audited))[:5] if line["result"] != "done")


async def test_logins_and_wrong_passwords_have_a_line_and_no_password(audited: Cluster) -> None:
    await audited.user("alice")
    async with audited.client() as guest:
        await sign_in(guest, "alice")
        await refused(guest.post(f"{V1}/auth/login", json={"name": "alice", "password": "wr0ng-pass!"}), 401)
    wrong, right = (await lines(audited, action="login"))[:2]
    assert (wrong["user"], wrong["result"], wrong["status"]) == ("alice", "refused", 401)
    assert right["result"] == "done"
    assert right["changes"][0]["subject"]["user"] == "alice"
    written = file_of(audited).read_text()
    assert "wr0ng-pass!" not in written
    assert PASSWORD not in written
    assert "argon2" not in written


async def test_a_terminal_has_a_line(audited: Cluster) -> None:
    alice = await audited.user("alice")
    await audited.add_project("vision", 1000, "alice")
    headers = {"Authorization": alice.headers["Authorization"]}
    query = {"project": "vision", "command": json.dumps(["cat", "secret"])}
    await open_websocket(audited.app, f"{V1}/sessions/nothing/exec", headers, query)
    line = await last(audited, user="alice", action="session_enter")
    assert (line["object"], line["project"], line["status"]) == ("sessions/nothing/exec", "vision", 404)
    assert "secret" not in json.dumps(line)
    await open_websocket(audited.app, f"{V1}/sessions/nothing/exec", {"Authorization": "Bearer wrong"}, query)
    assert (await last(audited, action="session_enter"))["status"] == 401


async def test_a_terminal_that_opens_has_a_line_and_one_that_cannot_another(audited: Cluster) -> None:
    await audited.add_node()
    await audited.add_image()
    await audited.add_project("team-a", 4000)
    await audited.submit("one")
    await audited.settle()
    headers = {"Authorization": audited.admin.headers["Authorization"]}
    await open_websocket(audited.app, f"{V1}/sessions/one/exec", headers)
    line = await last(audited, action="session_enter")
    assert (line["object"], line["result"]) == ("sessions/one/exec", "done")
    audited.engine.failure = UnreachableError("the agent of worker1 does not answer", delivered=False)
    await open_websocket(audited.app, f"{V1}/sessions/one/exec", headers)
    failed = await last(audited, action="session_enter")
    assert (failed["object"], failed["result"], failed["status"], failed["nodes"]) == (
        *("sessions/one/exec", "failed", 503),
        ["worker1"],
    )


async def test_nothing_secret_of_a_session_is_told(audited: Cluster) -> None:
    await audited.add_node()
    await audited.add_image()
    await audited.add_project("team-a", 4000)
    await audited.submit("one", environment={"TOKEN": "hush"}, command=["run", "--token", "hush"])
    line = await last(audited, action="session_submit")
    assert (line["object"], line["project"]) == ("sessions/one", "team-a")
    assert "hush" not in json.dumps(line)


async def test_every_column_of_an_audited_table_is_told_or_left_out_for_a_reason(audited: Cluster) -> None:
    left_out = frozenset().union(*LEFT_OUT.values())
    async with audited.database.engine.connect() as connection:
        columns = await connection.run_sync(
            lambda sync: {table: {one["name"] for one in inspect(sync).get_columns(table)} for table in AUDITED}
        )
        query = text("SELECT tgrelid::regclass::text, tgargs FROM pg_trigger WHERE tgname = 'note_audited_change'")
        triggers = {
            table: tuple(bytes(arguments).decode().rstrip("\0").split("\0"))
            for table, arguments in await connection.execute(query)
        }
    assert triggers == AUDITED
    for table, names in columns.items():
        undecided = names - set(AUDITED[table]) - left_out
        assert table == "nodes" or not undecided, f"{table}: {undecided}"
        assert not set(AUDITED[table]) & LEFT_OUT["secret"]


def test_every_table_is_audited_or_left_out_for_a_reason() -> None:
    left_out = frozenset().union(*NOT_AUDITED.values())
    assert not left_out & AUDITED.keys()
    assert left_out | AUDITED.keys() == Base.metadata.tables.keys()


async def test_every_endpoint_that_changes_something_tells_it_with_the_change(audited: Cluster) -> None:
    def has_transaction(dependant: Dependant) -> bool:
        return dependant.call is _transaction or any(map(has_transaction, dependant.dependencies))

    changing = [
        context.original_route
        for context in iter_route_contexts(audited.app.routes)
        if isinstance(context.original_route, APIRoute)
        and not set(context.original_route.methods or ()) <= set(SAFE_METHODS)
    ]
    assert len(changing) > 40
    without = {
        route.endpoint.__name__
        for route in changing
        if not is_for_agents(route.endpoint)
        and action_of(route.endpoint) not in DRY_RUNS
        and not has_transaction(route.dependant)
    }
    assert without <= BY_THEMSELVES


async def test_a_change_that_cannot_be_told_does_not_happen(audited: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(service, "begin", fail)
        answer = await audited.admin.post(f"{V1}/projects", json=PROJECT)
        assert answer.status_code == 500
    await refused(audited.admin.get(f"{V1}/projects/vision"), 404)


async def test_a_change_that_is_undone_leaves_no_change_in_the_log(audited: Cluster) -> None:
    await audited.add_project("vision", 1000)
    await audited.settle()
    await refused(audited.admin.post(f"{V1}/projects", json=PROJECT), 409)
    async with audited.database.reading() as db:
        assert await db.scalar(select(func.count()).select_from(AuditChange)) == 0
        assert await db.scalar(select(func.count()).select_from(AuditEvent)) == 1


async def test_the_work_of_the_reconcilers_is_nobodys_change(audited: Cluster) -> None:
    await audited.add_node()
    await audited.add_image()
    await audited.add_project("team-a", 4000)
    await audited.submit("one")
    before = await lines(audited)
    assert (await audited.session("one"))["state"] == "RUNNING"
    after = await lines(audited)
    assert {line["action"] for line in after[: len(after) - len(before)]} == {"audit_read"}


async def test_reading_the_log_has_a_line(audited: Cluster) -> None:
    await lines(audited)
    assert (await last(audited))["action"] == "audit_read"
    await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert (await last(audited))["object"] == "audit/verification"
    day = file_of(audited).stem
    assert (await audited.admin.get(f"{V1}/audit/files/{day}")).is_success
    assert (await last(audited))["object"] == f"audit/files/{day}"


async def test_who_floods_the_log_with_failures_is_counted(audited: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 0.0
    monkeypatch.setattr("api.endpoints.failed_attempts.time.monotonic", lambda: moment)
    async with audited.client("no key") as guest:
        for _ in range(OF_A_MINUTE + 7):
            await refused(guest.delete(f"{V1}/projects/vision"), 401)
        assert len(await lines(audited, result="refused")) == OF_A_MINUTE
        moment = 61.0
        await tell_left_out(audited.app)
        assert (await last(audited, result="refused"))["left_out"] == 6
        await refused(guest.delete(f"{V1}/projects/vision"), 401)
    assert len(await lines(audited, result="refused")) == OF_A_MINUTE + 2


async def test_nothing_hides_behind_a_flood(audited: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 0.0
    monkeypatch.setattr("api.endpoints.failed_attempts.time.monotonic", lambda: moment)
    async with audited.client("no key") as guest:
        for name in (*["junk"] * OF_A_MINUTE, "vision", "rockets", "junk"):
            await refused(guest.delete(f"{V1}/projects/{name}"), 401)
        moment = 61.0
        await tell_left_out(audited.app)
    assert (await last(audited, result="refused"))["objects"] == [
        "projects/vision",
        "projects/rockets",
        "projects/junk",
    ]
    (found,) = await lines(audited, object="projects/vision")
    assert (found["object"], found["left_out"]) == ("projects/junk", 2)


async def test_searches_wait_for_their_turn_and_keep_nobody_from_the_database(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them takes a core for as long as the log is long."""
    running, most, begun, goes_on = 0, 0, asyncio.Event(), asyncio.Event()

    async def long_search(*_: object, **__: object) -> tuple[list[object], None]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == AT_ONCE:
            begun.set()
        await goes_on.wait()
        running -= 1
        return [], None

    monkeypatch.setattr("api.endpoints.audit_log.service.search", long_search)
    auditor = await audited.user("auditor", UserRole.AUDITOR)
    clients = [audited.admin, auditor, await audited.user("auditor2", UserRole.AUDITOR)]
    waiting = [asyncio.create_task(clients[each % 3].get(f"{V1}/audit")) for each in range(40)]
    async with asyncio.timeout(60):
        await begun.wait()
        await audited.add_project("vision", 1000)
        goes_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
    assert most == AT_ONCE


async def test_searches_of_one_domain_or_person_hold_no_turn_of_others(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, begun, goes_on = list[str](), asyncio.Event(), asyncio.Event()

    async def long_search(_log: object, _search: object, caller: Identity, **_: object) -> tuple[list[object], None]:
        running.append(caller.name)
        begun.set()
        if caller.name != "admin":
            await goes_on.wait()
        return [], None

    monkeypatch.setattr("api.endpoints.audit_log.service.search", long_search)
    await ok(audited.admin.post(f"{V1}/domains", json={"name": "acme"}))
    chiefs = [await audited.user(name, UserRole.ADMIN) for name in ("chief", "deputy")]
    for name in ("chief", "deputy"):
        await ok(audited.admin.patch(f"{V1}/users/{name}", json={"domain": "acme"}))
    waiting = [asyncio.create_task(chiefs[each % 2].get(f"{V1}/audit")) for each in range(8)]
    async with asyncio.timeout(60):
        await begun.wait()
        for _ in range(3):
            await ok(audited.admin.get(f"{V1}/audit"))
        assert (running.count("admin"), len(running)) == (3, 4)
        goes_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


async def test_a_domain_sees_what_concerns_it_alone(audited: Cluster) -> None:
    await ok(audited.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await audited.add_project("vision", 0)
    await ok(audited.admin.post(f"{V1}/projects", json=PROJECT | {"name": "rockets", "domain": "acme"}))
    chief = await audited.user("chief", UserRole.ADMIN)
    await ok(audited.admin.patch(f"{V1}/users/chief", json={"domain": "acme"}))
    await ok(chief.patch(f"{V1}/projects/rockets", json={"description": "Up"}))
    await audited.settle()
    seen = await ok(chief.get(f"{V1}/audit"))
    concerned = ["projects/rockets", "users/chief", "projects/rockets", "domains/acme"]
    assert [line["object"] for line in seen] == concerned
    assert all("acme" in line["domains"] for line in seen)
    for path in ("verification", "files"):
        assert (await chief.get(f"{V1}/audit/{path}")).status_code == 403


async def test_a_domain_sees_what_is_changed_of_itself(audited: Cluster) -> None:
    for domain in ("acme", "globex"):
        await ok(audited.admin.post(f"{V1}/domains", json={"name": domain}))
    chief = await audited.user("chief", UserRole.ADMIN)
    await ok(audited.admin.patch(f"{V1}/users/chief", json={"domain": "acme"}))
    for domain in ("acme", "globex"):
        await ok(audited.admin.patch(f"{V1}/domains/{domain}", json={"quota_milli": 4000}))
    await audited.settle()
    line, *_ = await ok(chief.get(f"{V1}/audit?action=domain_manage"))
    assert (line["object"], line["domains"]) == ("domains/acme", ["acme"])
    assert [change["after"] for change in line["changes"]] == [{"quota_milli": 4000}]


async def test_a_domain_sees_what_it_loses_and_not_what_becomes_of_it(audited: Cluster) -> None:
    chiefs = {}
    for domain in ("acme", "globex"):
        await ok(audited.admin.post(f"{V1}/domains", json={"name": domain}))
        chiefs[domain] = await audited.user(f"of-{domain}", UserRole.ADMIN)
        await ok(audited.admin.patch(f"{V1}/users/of-{domain}", json={"domain": domain}))
    group = {"name": "night", "domain": "acme", "description": "ours"}
    await ok(audited.admin.post(f"{V1}/resource-groups", json=group))
    moved = {"domain": "globex", "description": "theirs"}
    await ok(audited.admin.patch(f"{V1}/resource-groups/night", json=moved))
    await audited.settle()
    for domain, before, after in (("acme", group, None), ("globex", None, moved)):
        line, *_ = await ok(chiefs[domain].get(f"{V1}/audit?object=resource-groups/night"))
        (change,) = line["changes"]
        assert line["domains"] == [domain]
        assert change["subject"] == {"name": "night", "domain": domain}
        kept = [side and {name: side[name] for name in moved} for side in (before, after)]
        assert [change["before"], change["after"]] == kept


async def test_pages_follow_each_other_and_filters_hold(audited: Cluster) -> None:
    for number in range(7):
        await audited.add_project(f"p{number}", 0)
    await audited.settle()
    seen, after = [], None
    while True:
        query: dict[str, Any] = {"limit": 3, "action": "project_create"} | ({"after": after} if after else {})
        answer = await audited.admin.get(f"{V1}/audit", params=query)
        seen += [line["object"] for line in answer.json()]
        if not (after := answer.headers.get("X-Next")):
            break
    assert seen == [f"projects/p{number}" for number in reversed(range(7))]
    assert await lines(audited, since="2200-01-01T00:00:00Z") == []
    assert await lines(audited, until="2000-01-01T00:00:00Z") == []
    assert len(await lines(audited, object="projects/p3")) == 1


async def test_without_a_folder_nothing_is_told(cluster: Cluster) -> None:
    await cluster.add_project("vision", 1000)
    await refused(cluster.admin.get(f"{V1}/audit"), 503)
    async with cluster.database.reading() as db:
        assert await db.scalar(select(func.count()).select_from(AuditEvent)) == 0


async def test_what_was_done_by_an_id_is_found_by_the_name(audited: Cluster) -> None:
    await audited.add_node()
    await audited.add_image()
    await audited.add_project("team-a", 4000)
    session = await audited.submit("one")
    await audited.settle()
    deleted = await audited.admin.delete(f"{V1}/sessions/{session['id']}", params={"project": "team-a"})
    assert deleted.is_success
    found = await lines(audited, object="sessions/one")
    assert [line["action"] for line in found] == ["session_end", "session_submit"]
