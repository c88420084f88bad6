"""The page of accounting and that of API keys: what they show, hand out and revoke."""

from __future__ import annotations

import csv
import io
import re

import httpx
import pytest

from api.console import formats
from tests.api.cluster import V1, Cluster, ok
from tests.api.console.conftest import PAGE
from tests.api.steps import run

pytestmark = pytest.mark.anyio

PART = {"HX-Request": "true"}


async def test_what_was_held_is_shown_and_downloaded(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await run(ready, "first", gpu_milli=1500)
    page = (await browser.get("/accounting?days=1&by=project")).text
    assert '<span title="team-a">team-a</span>' in page
    assert "[&#34;team-a&#34;]" in page, "it has a line in the plot"
    file = await browser.get("/accounting/csv?days=1&by=user")
    assert file.headers["content-type"] == "text/csv; charset=utf-8"
    (row,) = csv.DictReader(io.StringIO(file.text))
    assert (row["user"], row["deleted"], row["sessions"]) == ("admin", "False", "1")
    assert (await browser.get("/accounting?days=0", headers=PART)).status_code == 422


async def test_waits_are_shown_beside_what_waits_now(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await run(ready, "first")
    await ready.submit("second", 4000, preemptible=False)
    await ready.settle()
    page = (await browser.get("/accounting?days=1&by=project")).text
    (row,) = re.findall(
        r'title="team-a">team-a</span></th><td>1</td>(<td>\d+ s</td>){3}(<td>1</td><td>\d+ s</td>)', page
    )
    assert row
    assert 'data-labels="[&#34;median&#34;, &#34;95th percentile&#34;]"' in page


async def test_a_key_is_shown_once_works_and_ends(ready: Cluster, browser: httpx.AsyncClient) -> None:
    made = await browser.post("/keys", data={"name": "laptop", "scope": "read", "days": "7"}, headers=PART)
    assert (made.status_code, made.headers["hx-trigger"]) == (200, "refresh")
    (key,) = re.findall(r"psk_[A-Za-z0-9_-]+", made.text)
    async with ready.client(key) as program:
        assert (await program.get(f"{V1}/auth/me")).status_code == 200
        assert (await program.post(f"{V1}/presets", json={"name": "half"})).status_code == 403
        page = (await browser.get("/keys")).text
        assert key not in page
        assert "laptop" in page
        (one,) = [each for each in await ok(ready.admin.get(f"{V1}/api-keys")) if each["name"] == "laptop"]
        assert (one["scope"], one["expires_at"] is not None) == ("read", True)
        assert (await browser.post(f"/keys/{one['id']}/revoke", headers=PART)).status_code == 204
        assert (await program.get(f"{V1}/auth/me")).status_code == 401


async def test_a_key_without_a_name_is_refused_at_its_field(ready: Cluster, browser: httpx.AsyncClient) -> None:
    answer = await browser.post("/keys", data={"name": "", "scope": "all", "days": ""}, headers={**PAGE, **PART})
    assert answer.status_code == 422
    assert [told["pointer"] for told in answer.json()["errors"]] == ["/name"]


async def test_the_most_that_was_held_is_said_to_be_an_average(ready: Cluster, browser: httpx.AsyncClient) -> None:
    """A plot of a month has steps of hours, and more may have been held for a moment."""
    await run(ready, "first", gpu_milli=1500)
    page = (await browser.get("/accounting?days=30&by=project")).text
    step_s = (await ok(ready.admin.get(f"{V1}/accounting/timeline")))["step_s"]
    assert f"on average over {formats.duration(step_s)};" in page
