"""The documentation page, the description of the API, and what the API says of itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.endpoints import docs
from api.endpoints.docs import version_of
from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(docs, "VENDOR", tmp_path)
    return tmp_path


async def test_the_page_loads_nothing_from_outside(cluster: Cluster, vendor: Path) -> None:
    (vendor / "swagger-ui-bundle.js").touch()
    async with cluster.client() as guest:
        page = await guest.get("/docs")
        assert page.status_code == 200
        assert "swagger-ui-bundle.js" in page.text
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(loaded) == 5
        assert all(address.startswith(("/static/", "data:")) for address in loaded)
        assert not re.search(r"<script(?![^>]*src=)", page.text), "no inline script"
        for address in ("/static/docs.js", "/static/docs.css"):
            file = await guest.get(address)
            assert file.status_code == 200
            assert "frame-ancestors 'none'" in file.headers["content-security-policy"], "no page by itself"
            assert file.headers["x-content-type-options"] == "nosniff"
            assert address in loaded
        assert "http" not in (await guest.get("/static/docs.js")).text


async def test_what_is_asked_for_by_its_version_is_kept_and_nothing_else(cluster: Cluster) -> None:
    address = "/static/console/console.css"
    async with cluster.client() as guest:
        kept = await guest.get(address, params={"v": version_of("console/console.css")})
        assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
        for query in ({}, {"v": "000000000000"}):
            assert "cache-control" not in (await guest.get(address, params=query)).headers
        missing = await guest.get("/static/nothing.css", params={"v": version_of("nothing.css")})
        assert (missing.status_code, missing.headers.get("cache-control")) == (404, None)


@pytest.mark.usefixtures("vendor")
async def test_a_checkout_without_swagger_ui_says_how_to_get_it(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        page = await guest.get("/docs")
    assert page.status_code == 200
    assert "tools/vendor.sh" in page.text


async def test_nothing_outside_the_folder_is_served(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/"):
            assert (await guest.get(path)).status_code == 404


async def test_the_description_has_typed_answers_for_every_route(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        description = await ok(guest.get("/openapi.json"))
    operations = [
        (f"{method} {path}", operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(operations) > 25
    for name, operation in operations:
        assert operation.get("summary"), name
        status, good = next((code, answer) for code, answer in operation["responses"].items() if code.startswith("2"))
        if status == "204":
            assert "content" not in good, name
        elif not name.endswith(
            ("/logs", "/scheduler/cycle", "/audit/files/{day}", f"{V1}/metrics")
        ):  # texts, and files with a format of their own
            schema = good["content"]["application/json"]["schema"]
            assert "$ref" in schema or "$ref" in schema.get("items", {}), name
        bad = operation["responses"]["422"]["content"]["application/problem+json"]["schema"]
        assert bad == {"$ref": "#/components/schemas/ProblemDetails"}, name


async def test_health_and_settings(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        for path in ("/health", f"{V1}/health"):
            assert (await ok(guest.get(path)))["status"] == "healthy"
    shown = await ok(cluster.admin.get(f"{V1}/settings"))
    assert shown.pop("version")
    assert shown == {
        "fgpu_per_gpu": 2,
        "steps_per_fgpu": 10,
        "fgpu_milli": 500,
        "step_milli": 50,
        "largest_milli": 16000,
    }
