"""The page of accounting and that of API keys: what they show, hand out and revoke."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import httpx
import pytest
from sqlalchemy import update

from api.clock import now
from api.console import formats
from api.tables.accounting import BusyHour, Span
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


async def test_costs_and_how_busy_gpus_were_are_shown(ready: Cluster, browser: httpx.AsyncClient) -> None:
    session = await run(ready, "first", gpu_milli=2000)
    page = (await browser.get("/accounting?days=1&by=project")).text
    assert "Cost (" not in page, "the site has no prices"
    assert "<small>unknown</small>" in page, "of no time it is known"
    prices = {"price_currency": "EUR", "price_gpu_hour": Decimal("2.50")}
    ready.app.state.settings = ready.settings.model_copy(update=prices)
    hour = int(now().timestamp()) // 3600
    begun = datetime.fromtimestamp((hour - 2) * 3600, UTC)
    async with ready.database.transaction() as db:
        await db.execute(update(Span).values(started_at=begun, ended_at=begun + timedelta(hours=2)))
        id_ = UUID(session["id"])
        db.add(BusyHour(session_id=id_, hour=hour - 2, series=2, samples=480, busy_permille=120_000))
    page = (await browser.get("/accounting?days=1&by=project")).text
    assert "Cost (EUR)" in page
    (row,) = re.findall(r'title="team-a">team-a</span></th>(<td>.*</td>)', page)[:1]
    assert "<td>25 % <small>known of 50 %</small></td><td>10.00</td>" in row
    (row,) = await table(browser, "csv")
    names = ("gpu_hours", "covered_gpu_hours", "busy_gpu_hours", "cost", "currency")
    assert tuple(row[name] for name in names) == ("4.0", "2.0", "0.5", "10.00", "EUR")


async def test_each_plot_has_its_file(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await run(ready, "first", gpu_milli=1500)
    async with ready.database.transaction() as db:
        await db.execute(update(Span).values(started_at=now() - timedelta(hours=3)))
    held = await table(browser, "timeline/csv")
    assert {(row["project"], row["step_s"]) for row in held} == {("team-a", "720")}
    assert [row["gpus"] for row in held[-3:]] == ["1.5"] * 3
    waited = await table(browser, "waits/csv")
    assert [(row["project"], row["starts"], row["waiting_now"]) for row in waited[:1]] == [("team-a", "1", "0")]
    assert sum(int(row["starts"]) for row in waited[1:] if row["project"] == "*") == 1
    site = await table(browser, "utilization/csv")
    assert (site[-2]["held_gpus"], site[-2]["busy_gpus"]) == ("1.5", ""), "of what is unknown nothing is said"
    page = (await browser.get("/accounting?days=1&by=project")).text
    for name in ("timeline/csv", "waits/csv", "utilization/csv"):
        assert f'href="/accounting/{name}?days=1&amp;by=project"' in page


async def table(browser: httpx.AsyncClient, name: str) -> list[dict[str, str]]:
    file = await browser.get(f"/accounting/{name}?days=1&by=project")
    assert file.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(file.text)))


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
