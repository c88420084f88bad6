"""The audit log, walked by every route: no attempt goes untold by how it is made, and none takes a secret along."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, update

from api.auth.directory import Person
from api.auth.policy import UserRole
from api.clock import now
from api.endpoints.auditing import OF_A_MINUTE, tell_left_out
from api.settings import Settings
from api.tables.api_keys import ApiKey
from api.tables.logins import Login
from api.tables.users import User
from common.errors import UnavailableError
from common.protocol import HEARTBEAT_PATH
from tests.api.cluster import V1, Cluster, certified, ok, refused, sign_in
from tests.api.endpoints import scene
from tests.api.endpoints.routes import open_websocket, routes_of, status_of
from tests.api.endpoints.scene import key_of
from tests.api.endpoints.told import LOGIN, watch
from tests.api.resources.audit.log import last, lines
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio

SECRET = "S3cret!of-the-tests"
ENDED = ("never made", "revoked", "expired", "of a disabled account", "of an ended login", "no bearer's")


@asynccontextmanager
async def with_ended(cluster: Cluster, which: str) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client with what lets nobody in any more, or never did."""
    async with cluster.database.transaction() as db:
        if which == "revoked":
            await db.execute(delete(ApiKey).where(ApiKey.name == "key of member"))
        if which == "expired":
            await db.execute(update(ApiKey).values(expires_at=now() - timedelta(seconds=1)))
        if which == "of a disabled account":
            await db.execute(update(User).where(User.name == "member").values(disabled=True))
    async with cluster.client("psk_" + "x" * 43 if which == "never made" else key_of("member")) as client:
        if which == "no bearer's":
            client.headers["Authorization"] = "Basic bWVtYmVyOng="
        if which == "of an ended login":
            del client.headers["Authorization"]
            await sign_in(client, "admin")
            async with cluster.database.transaction() as db:
                await db.execute(delete(Login))
        yield client


@pytest.mark.parametrize("which", ENDED)
async def test_whoever_shows_what_holds_no_more_is_told_whatever_he_calls(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    await scene.prepare(cluster)
    async with with_ended(cluster, which) as client:
        told = watch(cluster, monkeypatch)
        client.event_hooks["response"].append(told.hear)
        asked = [route for route in routes_of(cluster.app) if not route.path.startswith(("/agent/", "/static"))]
        if which == "of an ended login":
            # a page of an app that is left open asks on, and is no attempt of anybody
            asked = [route for route in asked if route.path != f"{V1}/apps/authorize"]
        statuses = [await status_of(cluster, client, route) for route in asked]
    assert statuses.count(401) > 150
    missing = told.faults("")
    assert not missing, missing


async def test_a_key_that_holds_no_more_is_told_as_lists_of_keys_show_it(cluster: Cluster) -> None:
    made = await ok(cluster.admin.post(f"{V1}/api-keys", json={"name": "laptop"}))
    await ok(cluster.admin.delete(f"{V1}/api-keys/{made['id']}"))
    async with cluster.client(made["key"]) as thief:
        await refused(thief.get(f"{V1}/users"), 401)
    line = await last(cluster, result="refused")
    assert (line["credential"], line["object"]) == (f"api_keys:{made['prefix']}…", "users")
    async with cluster.client("hunter2hunter2hunter2hunter2") as forgetful:
        await refused(forgetful.get(f"{V1}/users"), 401)
    assert (await last(cluster, result="refused"))["credential"] == ""


@pytest.mark.parametrize(
    ("name", "status", "credential"),
    [("", 401, ""), ("worker1", 403, "certificate:worker1")],
)
async def test_who_speaks_for_a_node_without_its_certificate_is_told_and_fills_no_log(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, status: int, credential: str
) -> None:
    moment = 0.0
    monkeypatch.setattr("api.endpoints.failed_attempts.time.monotonic", lambda: moment)
    await cluster.add_node("worker1")
    body = beat(1, "boot-1", name="worker2").model_dump(mode="json")
    async with cluster.client(**(certified(name) if name else {})) as agent:
        for _ in range(12):
            await refused(agent.post(HEARTBEAT_PATH, json=body), status)
    moment = 61.0
    await tell_left_out(cluster.app)
    told = [line for line in await lines(cluster) if line["action"] == "heartbeat"]
    assert [(line["status"], line["credential"], line["left_out"]) for line in told] == [
        (status, credential, 10),
        (status, credential, 0),
    ]


async def test_no_agent_speaks_as_the_controller_untold(cluster: Cluster) -> None:
    await cluster.add_node("worker1")
    async with cluster.client(**certified("worker1")) as agent:
        await refused(agent.post("/agent/v1/repairs", json={}), 401)
    line = await last(cluster, result="refused")
    assert (line["object"], line["credential"]) == ("agent/v1/repairs", "certificate:worker1")


async def test_who_tries_apps_that_are_not_there_is_told_which(cluster: Cluster) -> None:
    alice = await cluster.user("alice")
    for uri in ("/theirs-8888/lab?token=hush", "/theirs-8888/api", "/secret-22/"):
        answer = await alice.get(f"{V1}/apps/authorize", headers={"X-Original-URI": uri})
        assert answer.headers["X-Status"] == "404"
    await tell_left_out(cluster.app, all_=True)
    one, other = await lines(cluster, action="app_open")
    assert (other["user"], other["object"], other["status"]) == ("alice", "apps/theirs-8888", 404)
    assert (one["left_out"], one["objects"]) == (1, ["apps/theirs-8888", "apps/secret-22"])


async def test_a_terminal_that_is_asked_for_wrongly_is_told_as_not_valid(cluster: Cluster) -> None:
    headers = {"Authorization": cluster.admin.headers["Authorization"]}
    await open_websocket(cluster.app, f"{V1}/sessions/one/exec", headers, {"project": SECRET, "command": "[]"})
    line = await last(cluster, action="session_enter")
    assert (line["status"], line["reason"]) == (422, "not valid: project")


async def test_no_name_that_somebody_tries_to_sign_in_with_hides_behind_a_flood(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        for number in range(OF_A_MINUTE + 1):
            await refused(guest.post(f"{V1}/auth/login", json={"name": f"junk{number}", "password": "x"}), 401)
        for name in ("admin", "junk1"):
            await refused(guest.post(f"{V1}/auth/login", json={"name": name, "password": "x"}), 401)
    await tell_left_out(cluster.app, all_=True)
    (line,) = await lines(cluster, object="users/admin", action="login")
    assert (line["left_out"], line["objects"]) == (2, [f"users/junk{OF_A_MINUTE}", "users/admin", "users/junk1"])


async def test_nothing_that_a_body_says_where_it_is_wrong_is_in_a_line(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is sent in the wrong place: as a field's text, as its key, deeper in it, as the whole body."""
    told = watch(cluster, monkeypatch)
    document = cluster.app.openapi()
    for route in routes_of(cluster.app):
        if route.method not in ("POST", "PUT", "PATCH") or route.path.startswith("/agent/"):
            continue
        for body in wrong_bodies(fields_of(document, route.method.lower(), route.path)):
            content, kind = (json.dumps(body), "application/json") if isinstance(body, dict | list | str) else body
            answer = await cluster.admin.request(
                route.method, route.filled, content=content, headers={"Content-Type": kind}, params={"password": SECRET}
            )
            assert answer.status_code < 500, f"{route} {body} {answer.text}"
    assert len(told.entries) > 300
    said = [line for lines_ in told.entries.values() for line in lines_ if SECRET in json.dumps(line)]
    assert said == [], json.dumps(said)[:900]


def fields_of(document: dict[str, Any], method: str, path: str) -> list[str]:
    """Return the fields of the body of a route; some that there may be where the document has none: of the console."""
    body = document["paths"].get(path, {}).get(method, {}).get("requestBody")
    if body is None:
        return ["name", "password", "text", "environment", "reference", "project", "members"]
    schema = body["content"]["application/json"]["schema"]
    return [*document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]]


def wrong_bodies(fields: list[str]) -> list[Any]:
    """Return bodies that have a secret at every place."""
    return [
        dict.fromkeys(fields, SECRET),
        {name: {SECRET: SECRET} for name in fields},
        {name: [SECRET] for name in fields},
        {SECRET: 1},
        [SECRET],
        SECRET,
        (f'{{"{SECRET}', "application/json"),
        ("&".join(f"{name}={SECRET}" for name in [*fields, SECRET]), "application/x-www-form-urlencoded"),
    ]


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (Person("entry-1", UserRole.MEMBER), 200),
        (None, 401),
        (Person("entry-1", None, disabled=True), 403),
        (UnavailableError("the directory cannot be asked", hint="wait"), 503),
    ],
    ids=["let in", "unknown", "disabled", "away"],
)
async def test_who_signs_in_by_the_directory_is_told_whatever_it_says(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, found: Person | UnavailableError | None, status: int
) -> None:
    async def person(_settings: Settings, _name: str, _password: str) -> Person | None:
        if isinstance(found, UnavailableError):
            raise found
        return found

    monkeypatch.setattr("api.auth.directory.person", person)
    settings = cluster.settings.model_copy(update={"ldap_url": "ldaps://directory"})
    monkeypatch.setattr(cluster.app.state, "settings", settings)
    async with cluster.client() as guest:
        answer = await guest.post(LOGIN, json={"name": "carol", "password": SECRET})
    assert answer.status_code == status
    result = "done" if status == 200 else "refused" if status in (401, 403) else "failed"
    [line] = [line for line in await lines(cluster, user="carol") if line["action"] == "login"]
    assert (line["result"], line["object"], line["credential"]) == (result, "auth/login", "")
    assert SECRET not in json.dumps(line)
    # an account comes to be with the line that says so
    assert {change["kind"] for change in line["changes"]} == ({"users", "logins"} if status == 200 else set())


@pytest.mark.parametrize("shown", ["the member's key", "a key that never was", "nothing"])
async def test_every_websocket_tells_who_was_not_let_in(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    await scene.prepare(cluster)
    key = {"the member's key": key_of("member"), "a key that never was": "psk_" + "x" * 43, "nothing": ""}[shown]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    asked = [route for route in routes_of(cluster.app) if route.method == "WEBSOCKET"]
    assert asked
    told = watch(cluster, monkeypatch)
    for route in asked:
        sent = await open_websocket(cluster.app, route.filled, headers, {"project": "rockets", "command": '["sh"]'})
        assert sent[0]["type"] == (
            "websocket.accept" if shown == "the member's key" else "websocket.http.response.start"
        )
    said = [line for lines_ in told.entries.values() for line in lines_]
    assert [(line["method"], line["result"], line["user"]) for line in said] == [
        ("WEBSOCKET", "failed", "member") if shown == "the member's key" else ("WEBSOCKET", "refused", "")
    ] * len(asked)
    assert not key or key not in json.dumps(said)


async def test_a_role_that_the_directory_gives_is_told_with_the_login_that_brought_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = UserRole.MEMBER

    async def person(_settings: Settings, _name: str, _password: str) -> Person:
        return Person("entry-1", role)

    monkeypatch.setattr("api.auth.directory.person", person)
    settings = cluster.settings.model_copy(update={"ldap_url": "ldaps://directory"})
    monkeypatch.setattr(cluster.app.state, "settings", settings)
    async with cluster.client() as guest:
        await ok(guest.post(LOGIN, json={"name": "carol", "password": SECRET}))
        role = UserRole.ADMIN
        await ok(guest.post(LOGIN, json={"name": "carol", "password": SECRET}))
    line = (await lines(cluster, user="carol", action="login"))[0]
    (told,) = (change for change in line["changes"] if change["kind"] == "users")
    assert (told["before"]["role"], told["after"]["role"]) == ("member", "admin")
