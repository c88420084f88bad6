"""What the API's document says of who may call: the schemes by name, and what each operation needs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.cluster import Cluster, ok
from tests.api.endpoints.routes import routes_of
from tests.api.resources.api_keys.test_api_keys import least

pytestmark = pytest.mark.anyio

PUBLIC = {"GET /health", "GET /api/v1/health", "POST /api/v1/auth/login"}


async def operations(cluster: Cluster) -> dict[str, Any]:
    async with cluster.client() as guest:
        document = await ok(guest.get("/openapi.json"))
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


async def test_the_schemes_are_those_of_keys_logins_and_certificates(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        schemes = (await ok(guest.get("/openapi.json")))["components"]["securitySchemes"]
    said = {name: {key: value for key, value in told.items() if key != "description"} for name, told in schemes.items()}
    assert said == {
        "key": {"type": "http", "scheme": "bearer"},
        "login": {"type": "apiKey", "in": "cookie", "name": "__Host-penstock_session"},
        "csrf": {"type": "apiKey", "in": "header", "name": "X-CSRF-Token"},
        "certificate": {"type": "mutualTLS"},
    }
    assert all(scheme["description"] for scheme in schemes.values())


async def test_every_operation_says_what_it_needs(cluster: Cluster) -> None:
    described = await operations(cluster)
    assert len(described) > 70
    assert {name for name, operation in described.items() if operation["security"] == []} == PUBLIC
    for name, operation in described.items():
        if name in PUBLIC:
            continue
        if name.startswith("POST /agent/"):
            assert operation["security"] == [{"certificate": []}], name
            continue
        key, login = operation["security"]
        assert [*key] == ["key"], name
        assert {*login} == ({"login"} if name.startswith("GET ") else {"login", "csrf"}), name


async def test_the_scope_of_a_key_is_the_one_that_is_asked_for(cluster: Cluster) -> None:
    described = await operations(cluster)
    named = {name: way["key"] for name, operation in described.items() for way in operation["security"] if "key" in way}
    assert len(named) > 70
    assert named == {str(route): [least(route)] for route in routes_of(cluster.app) if str(route) in named}
