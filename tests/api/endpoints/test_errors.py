"""Whatever a client sends, the answer names field, reason and hint, and is never a failure of ours."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from tests.api.cluster import V1, Cluster, problems, refused
from tests.api.endpoints.routes import Route, open_websocket, routes_of
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "error", [PoolTimeoutError("no connection is free"), OperationalError("SELECT", {}, OSError())]
)
async def test_a_database_that_does_not_answer_is_not_our_failure(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cluster.database, "reading", fail)
    body = {"name": "admin", "password": "x"}
    async with cluster.client() as guest:
        problem = await refused(guest.post(f"{V1}/auth/login", json=body), 503)
    assert problem["reason"] == "the database does not answer"


async def test_a_request_that_gives_way_to_another_one_finds_no_outage(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OperationalError("SELECT", {}, psycopg.errors.DeadlockDetected("deadlock detected"))

    monkeypatch.setattr(cluster.database, "reading", fail)
    async with cluster.client() as guest:
        problem = await refused(guest.post(f"{V1}/auth/login", json={"name": "admin", "password": "x"}), 409)
    assert problem["reason"] == "another request has just changed this"


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff\xfe", b'{"a": NaN', b"[" * 100_000, b'{"name": "\\ud800"}', b"null", b"[]", b'"x"', b"7"]
)
async def test_a_body_that_is_no_object(cluster: Cluster, body: bytes) -> None:
    response = await cluster.admin.post(f"{V1}/projects", content=body, headers=JSON)
    assert response.status_code == 422, response.text
    assert all(error["reason"] and error["hint"] for error in problems(response))


async def test_a_missing_and_an_unknown_key(cluster: Cluster) -> None:
    response = await cluster.admin.post(f"{V1}/projects", json={"nam": "x", "quota_milli": 1})
    assert response.status_code == 422
    errors = {error["where"]: error for error in problems(response)}
    assert errors["name"] == {"where": "name", "reason": "this is required", "hint": "add it"}
    assert errors["nam"]["reason"] == "unknown key"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", f"{V1}/nowhere", 404),
        ("DELETE", f"{V1}/nodes", 405),
        ("GET", f"{V1}/projects/a%00b", 422),
        ("GET", f"{V1}/projects/%F0%9F%98%80", 422),
        ("GET", f"{V1}/sessions?project=%00", 422),
        ("GET", f"{V1}/sessions?all=maybe", 422),
        ("GET", f"{V1}/sessions/demo", 422),
        ("GET", f"{V1}/sessions/demo?project=team-a", 404),
        ("GET", f"{V1}/sessions/demo/logs?project=team-a&tail=-1", 422),
        ("DELETE", f"{V1}/api-keys/7", 422),
        ("DELETE", f"{V1}/images/python", 404),
        ("GET", f"{V1}/nodes/{'x' * 500}", 422),
    ],
)
async def test_wrong_addresses(cluster: Cluster, method: str, path: str, status: int) -> None:
    error = await refused(cluster.admin.request(method, path), status)
    assert error["reason"]


async def told(answer: Any) -> list[dict[str, str]]:
    """Return the errors of an answer as they travel, without what their fields say."""
    response = await answer
    errors: list[dict[str, str]] = response.json()["errors"]
    return [{key: error[key] for key in error.keys() & {"pointer", "parameter", "where"}} for error in errors]


async def test_a_field_of_the_body_is_named_by_a_pointer(cluster: Cluster) -> None:
    body = {"name": "team-a", "quota_milli": 1000, "period": {"ends_at": None}, "members": ["ada", "A/B"]}
    assert await told(cluster.admin.post(f"{V1}/projects", json=body)) == [{"pointer": "/members/1"}]
    found_by_the_service = body | {"members": ["nobody"]}
    assert await told(cluster.admin.post(f"{V1}/projects", json=found_by_the_service)) == [{"pointer": "/members"}]
    key = {"name": "a", "project": "b", "image": "c", "gpu_milli": 1, "environment": {"A/B": "x"}}
    assert await told(cluster.admin.post(f"{V1}/sessions", json=key)) == [{"pointer": "/environment/A~1B"}]
    assert await told(cluster.admin.post(f"{V1}/projects", content=b"{", headers=JSON)) == [{"pointer": ""}]


async def test_a_parameter_is_named_and_all_else_is_where(cluster: Cluster) -> None:
    assert await told(cluster.admin.get(f"{V1}/sessions?all=maybe")) == [{"parameter": "all"}]
    assert await told(cluster.admin.get(f"{V1}/sessions/demo?project=team-a")) == [{"parameter": "project"}]
    assert await told(cluster.admin.get(f"{V1}/projects/team-a")) == [{"parameter": "name"}]
    assert await told(cluster.admin.get("/nowhere")) == [{}]
    async with cluster.client() as browser:
        login = await browser.post(f"{V1}/auth/login", json={"name": "admin", "password": PASSWORD})
        assert login.status_code == 200
        assert await told(browser.post(f"{V1}/auth/logout")) == [{"where": "X-CSRF-Token"}]


async def test_the_answer_is_problem_details(cluster: Cluster) -> None:
    response = await cluster.admin.post(f"{V1}/projects", json={"name": "A", "quota_milli": -1})
    body = response.json()
    assert {key: body[key] for key in ("type", "title", "status")} == {
        "type": "about:blank",
        "title": "Unprocessable Entity",
        "status": 422,
    }
    assert body["detail"].splitlines() == [
        f"{error['where']}: {error['reason']}. Hint: {error['hint']}" for error in problems(response)
    ]
    assert len(body["errors"]) > 1


async def test_what_nobody_expected_is_refused_in_the_same_form_and_logged_under_its_id(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cluster.database, "reading", fail)
    async with cluster.client() as guest:
        with capture_logs(processors=[merge_contextvars]) as lines:
            response = await guest.post(f"{V1}/auth/login", json={"name": "admin", "password": "x"})
    (problem,) = problems(response)
    name = response.headers["X-Request-Id"]
    assert (response.status_code, problem["reason"]) == (500, "the API failed unexpectedly; its log says why")
    assert problem["hint"] == f"tell the administrator (request {name})"
    assert [line["request_id"] for line in lines if line["event"] == "unexpected"] == [name]


async def test_every_answer_names_its_request_and_only_the_edge_may_do_so(cluster: Cluster) -> None:
    first, second = [(await cluster.admin.get(f"{V1}/projects")).headers["X-Request-Id"] for _ in range(2)]
    assert first != second
    claimed = {"X-Request-Id": "0123"}
    assert (await cluster.admin.get("/health", headers=claimed)).headers["X-Request-Id"] == "0123"
    cluster.app.state.settings = cluster.settings.model_copy(update={"trust_client_headers": False})
    assert (await cluster.admin.get("/health", headers=claimed)).headers["X-Request-Id"] != "0123"


async def test_every_route_names_the_request_that_it_answers_or_refuses(cluster: Cluster) -> None:
    """Whoever asks, by whichever method: those of routes, one that no route has, and what is no route at all."""
    nowhere = [Route("GET", "/nowhere"), Route("WEBSOCKET", "/nowhere"), Route("GET", "/static/nowhere")]
    async with cluster.client() as guest:
        for route in [*routes_of(cluster.app), *nowhere]:
            if route.method == "WEBSOCKET":
                sent = await open_websocket(cluster.app, route.filled, {})
                headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
                assert sent[0]["status"] >= 400, route
                assert json.loads(sent[1]["body"])["request_id"] == headers["x-request-id"] != "", route
                continue
            for method, content in ((route.method, b""), (route.method, b"{"), ("TRACE", b"")):
                answer = await guest.request(method, route.filled, content=content)
                assert len(answer.headers["X-Request-Id"]) == 32, (method, route)
                # what the edge alone asks has no body
                if answer.is_error and answer.content:
                    assert answer.json()["request_id"] == answer.headers["X-Request-Id"], (method, route)
                    assert answer.headers["Content-Type"] == "application/problem+json", (method, route)


async def test_the_document_declares_problem_details_for_every_operation(cluster: Cluster) -> None:
    document = cluster.app.openapi()
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert len(operations) > 50
    for operation in operations:
        for status, response in operation["responses"].items():
            if status >= "400":
                assert response["content"] == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
                }
                assert "X-Request-Id" in response["headers"]


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=3)),
    max_leaves=5,
)
fields = st.sampled_from(
    ["name", "project", "image", "gpu_milli", "interactive", "command", "args", "environment", "pvcs", "quota_milli"]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(fields, values, max_size=8), path=st.sampled_from(["sessions", "projects", "images"]))
async def test_no_body_makes_the_api_fail(cluster: Cluster, body: object, path: str) -> None:
    response = await cluster.admin.post(f"{V1}/{path}", content=json.dumps(body).encode(), headers=JSON)
    assert response.status_code < 500
