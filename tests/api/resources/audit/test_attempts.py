"""Attempts in the audit log: none is kept out of it, none fills it, and what a line says is not its sender's choice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import InternalError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from api.endpoints import auditing
from api.endpoints.auditing import OF_A_MINUTE, tell_left_out
from api.resources.audit.service import MAX_TEXT
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.resources.audit.log import PROJECT, file_of, last, lines
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio

NUL = "?project=%00"
LONG = "k" * 100_000


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("DELETE", "users/alice", 401), ("GET", "audit/files/20200101", 401), ("DELETE", "users/a%00b", 401)],
)
async def test_a_nul_character_keeps_no_attempt_out(audited: Cluster, method: str, path: str, status: int) -> None:
    async with audited.client("no key") as guest:
        await refused(guest.request(method, f"{V1}/{path}{NUL}"), status)
    line = await last(audited, result="refused")
    assert (line["status"], line["project"]) == (status, None)


async def test_a_nul_character_keeps_no_login_out(audited: Cluster) -> None:
    await audited.user("alice")
    async with audited.client() as guest:
        wrong = {"name": "alice", "password": "wr0ng-pass!"}
        await refused(guest.post(f"{V1}/auth/login{NUL}", json=wrong), 401)
        await ok(guest.post(f"{V1}/auth/login{NUL}", json={"name": "alice", "password": PASSWORD}))
    right, failed = (await lines(audited, action="login"))[:2]
    assert (failed["user"], failed["status"], right["result"]) == ("alice", 401, "done")


@pytest.mark.parametrize("key", ["a\0b", LONG, "s3cret!pass\nx\x1b[2J"], ids=["nul", "long", "secret"])
async def test_keys_that_nobody_knows_are_told_and_not_repeated(audited: Cluster, key: str) -> None:
    body = json.dumps(PROJECT | {key: 1, "name": "Not A Name"})
    headers = {"Content-Type": "application/json"}
    answer = await audited.admin.post(f"{V1}/projects", content=body, headers=headers)
    assert answer.status_code == 422
    line = await last(audited, action="project_create")
    assert line["status"] == 422
    assert line["reason"] == "not valid: name, unknown key"


@pytest.mark.parametrize(
    ("method", "path", "object_"),
    [
        ("DELETE", f"{V1}/api-keys/KEY", "api-keys/psk_…"),
        ("POST", "/repairs/runs/KEY/cancel", "repair-runs/psk_…/cancel"),
        ("POST", "/backups/orders/KEY/cancel", "backup-orders/psk_…/cancel"),
    ],
)
async def test_a_key_in_place_of_its_id_is_not_told(audited: Cluster, method: str, path: str, object_: str) -> None:
    await refused(audited.admin.request(method, path.replace("KEY", "psk_Abc-def_0123456789")), 422)
    assert (await last(audited, result="failed"))["object"] == object_


async def test_no_text_of_a_line_is_long(audited: Cluster) -> None:
    async with audited.client("no key") as guest:
        await refused(guest.delete(f"{V1}/users/{'u' * 6000}"), 401)
    line = await last(audited, result="refused")
    assert line["object"] == f"users/{'u' * (MAX_TEXT - 7)}…"
    assert len(file_of(audited).read_bytes()) < 4000


async def test_a_password_in_place_of_the_name_is_not_told(audited: Cluster) -> None:
    async with audited.client() as guest:
        await refused(guest.post(f"{V1}/auth/login", json={"name": PASSWORD, "password": "x"}), 401)
    assert (await last(audited, action="login"))["user"] == ""
    assert PASSWORD not in file_of(audited).read_text()


async def test_the_object_is_what_was_sent_with_new_lines_and_all(audited: Cluster) -> None:
    async with audited.client("no key") as guest:
        await refused(guest.delete(f"{V1}/users/a%0Aadmin"), 401)
        await refused(guest.delete(f"{V1}/users/a%3Fadmin"), 401)
    assert [line["object"] for line in await lines(audited, result="refused")] == ["users/a?admin", "users/a\nadmin"]


async def test_unknown_containers_are_ended_only_where_that_is_told(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    await audited.add_node()
    await audited.add_image()
    await audited.add_project("team-a", 4000)
    await audited.submit("one")
    await audited.settle()
    (state,) = audited.engine.containers.values()
    stranger = state.model_copy(update={"id": "stranger", "session_id": "0" * 32})
    audited.engine.containers["worker1", "stranger"] = stranger
    await audited.heartbeat()
    await audited.settle()
    path = f"{V1}/nodes/worker1/unknown-containers"
    with monkeypatch.context() as broken:
        broken.setattr("api.resources.audit.repository.add", fail)
        assert (await audited.admin.delete(path)).status_code == 500
    assert ("worker1", "stranger") in audited.engine.containers
    await ok(audited.admin.delete(f"{path}{NUL}"))
    assert ("worker1", "stranger") not in audited.engine.containers
    line = await last(audited, action="node_change")
    assert (line["object"], line["result"]) == ("nodes/worker1/unknown-containers", "done")


async def test_what_was_left_out_is_told_when_the_minute_ends(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = 0.0
    monkeypatch.setattr("api.endpoints.failed_attempts.time.monotonic", lambda: moment)
    alice = await audited.user("alice")
    for number in range(OF_A_MINUTE + 4):
        await refused(alice.delete(f"{V1}/users/junk{number}"), 403)
    await refused(alice.delete(f"{V1}/users/admin"), 403)
    await refused(alice.post(f"{V1}/users", json={"name": "mally", "password": PASSWORD}), 403)
    assert (await last(audited, user="alice", result="refused"))["action"] == "user_create"
    await tell_left_out(audited.app)
    assert len(await lines(audited, user="alice", result="refused")) == OF_A_MINUTE + 1
    moment = 61.0
    await tell_left_out(audited.app)
    line = await last(audited, user="alice", result="refused")
    assert (line["object"], line["left_out"]) == ("users/admin", 4)
    await tell_left_out(audited.app)
    assert len(await lines(audited, user="alice", result="refused")) == OF_A_MINUTE + 2


@pytest.mark.parametrize("object_", ["a%00b", "u" * 6000], ids=["nul", "long"])
async def test_what_was_left_out_is_told_whatever_it_was_about(audited: Cluster, object_: str) -> None:
    async with audited.client("no key") as guest:
        for _ in range(OF_A_MINUTE):
            await refused(guest.delete(f"{V1}/users/junk"), 401)
        await refused(guest.delete(f"{V1}/users/{object_}"), 401)
        await refused(guest.delete(f"{V1}/users/admin"), 401)
    await tell_left_out(audited.app, all_=True)
    line = await last(audited, result="refused")
    assert (line["left_out"], line["objects"][1]) == (1, "users/admin")
    assert len(line["objects"][0]) <= MAX_TEXT


async def test_what_was_left_out_waits_for_a_database_that_is_away(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("INSERT", {}, ConnectionError("the server is away"))

    async with audited.client("no key") as guest:
        for _ in range(OF_A_MINUTE + 3):
            await refused(guest.delete(f"{V1}/users/junk"), 401)
    with monkeypatch.context() as away:
        away.setattr("api.resources.audit.repository.add", fail)
        await tell_left_out(audited.app, all_=True)
    assert len(await lines(audited, result="refused")) == OF_A_MINUTE
    await tell_left_out(audited.app, all_=True)
    assert (await last(audited, result="refused"))["left_out"] == 2
    await tell_left_out(audited.app, all_=True)
    assert len(await lines(audited, result="refused")) == OF_A_MINUTE + 1


async def test_who_stops_the_api_while_it_tells_what_was_left_out_keeps_nothing_out(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling = asyncio.Event()

    async def hang(*_: Any, **__: Any) -> None:
        telling.set()
        await asyncio.Event().wait()

    async with audited.client("no key") as guest:
        for action in ("users/junk", "nodes/junk"):
            for _ in range(OF_A_MINUTE + 2):
                await refused(guest.delete(f"{V1}/{action}"), 401)
    with monkeypatch.context() as slow:
        slow.setattr("api.resources.audit.repository.add", hang)
        stopped = asyncio.create_task(tell_left_out(audited.app, all_=True))
        await telling.wait()
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
    await tell_left_out(audited.app, all_=True)
    told = [line["object"] for line in await lines(audited, result="refused") if line["left_out"]]
    assert told == ["nodes/junk", "users/junk"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OperationalError("SELECT", {}, ConnectionError("the server is away")), 503),
        (OperationalError("SELECT", {}, psycopg.errors.DeadlockDetected()), 409),
        (InternalError("UPDATE", {}, psycopg.errors.ReadOnlySqlTransaction()), 503),
        (HTTPException(400, "no JSON"), 422),
    ],
    ids=["away", "deadlock", "standby", "bad request"],
)
async def test_a_line_says_what_was_answered_to_what_is_no_error_of_ours(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as away:
        away.setattr("api.resources.projects.service.get", fail)
        await refused(audited.admin.delete(f"{V1}/projects/vision"), status)
    assert (await last(audited, action="project_delete"))["status"] == status


async def test_what_becomes_another_failure_as_its_transaction_ends_is_told_as_it_is_answered(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body is not valid, and the database ends the connection before that can be said."""
    begin = auditing.begin

    async def begin_and_be_lost(db: AsyncSession, connection: HTTPConnection) -> None:
        await begin(db, connection)
        process = await db.scalar(select(func.pg_backend_pid()))
        async with audited.database.reading() as other:
            await other.execute(select(func.pg_terminate_backend(process)))

    with monkeypatch.context() as lost:
        lost.setattr(auditing, "begin", begin_and_be_lost)
        await refused(audited.admin.post(f"{V1}/projects", json=PROJECT | {"name": "Not A Name"}), 503)
    assert (await last(audited, action="project_create"))["status"] == 503


async def test_a_body_that_is_no_json_is_told_as_that(audited: Cluster) -> None:
    headers = {"Content-Type": "application/json"}
    assert (await audited.admin.post(f"{V1}/projects", content="{", headers=headers)).status_code == 422
    assert (await last(audited, action="project_create"))["reason"] == "not valid: body"


async def test_what_was_left_out_is_told_when_the_api_stops(audited: Cluster) -> None:
    async with audited.client("no key") as guest, audited.app.router.lifespan_context(audited.app):
        for _ in range(OF_A_MINUTE + 3):
            await refused(guest.delete(f"{V1}/users/junk"), 401)
    assert (await last(audited, result="refused"))["left_out"] == 2
