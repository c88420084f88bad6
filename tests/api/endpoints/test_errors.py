"""Whatever a client sends, the answer names field, reason and hint, and is never a failure of ours."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.endpoints.errors import status_of
from common.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    PenstockError,
    UnauthenticatedError,
    UnavailableError,
)
from tests.api.cluster import V1, Cluster, refused

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


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff\xfe", b'{"a": NaN', b"[" * 100_000, b'{"name": "\\ud800"}', b"null", b"[]", b'"x"', b"7"]
)
async def test_a_body_that_is_no_object(cluster: Cluster, body: bytes) -> None:
    response = await cluster.admin.post(f"{V1}/projects", content=body, headers=JSON)
    assert response.status_code == 422, response.text
    assert all(set(error) == {"where", "reason", "hint"} for error in response.json()["errors"])


async def test_a_missing_and_an_unknown_key(cluster: Cluster) -> None:
    response = await cluster.admin.post(f"{V1}/projects", json={"nam": "x", "quota_milli": 1})
    assert response.status_code == 422
    errors = {error["where"]: error for error in response.json()["errors"]}
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


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (InputError, 422),
        (UnauthenticatedError, 401),
        (ForbiddenError, 403),
        (NotFoundError, 404),
        (ConflictError, 409),
        (UnavailableError, 503),
        (PenstockError, 500),
    ],
)
def test_the_status_of_every_kind(kind: type[PenstockError], status: int) -> None:
    assert status_of(kind("x")) == status


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=3)),
    max_leaves=5,
)
fields = st.sampled_from(
    ["name", "project", "image", "gpu_milli", "interactive", "command", "args", "environment", "volumes", "quota_milli"]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(fields, values, max_size=8), path=st.sampled_from(["sessions", "projects", "images"]))
async def test_no_body_makes_the_api_fail(cluster: Cluster, body: object, path: str) -> None:
    response = await cluster.admin.post(f"{V1}/{path}", content=json.dumps(body).encode(), headers=JSON)
    assert response.status_code < 500
