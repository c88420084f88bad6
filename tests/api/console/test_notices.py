"""The page of notices: administrators write what everybody is told, see what will be, and withdraw it."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.api.cluster import V1, Cluster, ok
from tests.api.console.conftest import PAGE
from tests.api.console.test_languages import unmarked

pytestmark = pytest.mark.anyio

PART = {"HX-Request": "true"}
EMPTY = {"ko": "", "ja": "", "zh": "", "th": "", "starts_at": "", "ends_at": ""}
NOTICE = {**EMPTY, "level": "warning", "text": "Maintenance on <b>Friday</b>"}


async def test_a_notice_is_written_in_several_languages_and_withdrawn(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    made = await browser.post("/notices", data={**NOTICE, "ko": "금요일 점검"}, headers=PART)
    assert (made.status_code, made.headers["hx-trigger"]) == (204, "refresh")
    (notice,) = await ok(ready.admin.get(f"{V1}/notices"))
    assert (notice["level"], notice["texts"], notice["ends_at"]) == ("warning", {"ko": "금요일 점검"}, None)
    page = (await browser.get("/notices")).text
    assert "Maintenance on &lt;b&gt;Friday&lt;/b&gt;" in page
    assert "금요일 점검" in page, "whoever writes sees what others read"
    assert "금요일 점검" in (await browser.get("/", headers={"Accept-Language": "ko"})).text
    (address,) = re.findall(r'hx-post="(/notices/[^"]+)"', page)
    assert (await browser.post(address, headers=PART)).status_code == 204
    assert "There is no notice." in (await browser.get("/notices")).text
    assert "Friday" not in (await browser.get("/")).text
    assert (await browser.post(address, headers=PART)).status_code == 404


async def test_a_notice_that_begins_later_stands_on_the_page_alone_in_utc(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    later = {**NOTICE, "starts_at": "2100-01-01T08:00", "ends_at": "2100-01-01T18:00"}
    assert (await browser.post("/notices", data=later, headers=PART)).status_code == 204
    (notice,) = await ok(ready.admin.get(f"{V1}/notices"))
    assert notice["starts_at"].startswith("2100-01-01T08:00:00")
    assert "2100-01-01 18:00 UTC" in (await browser.get("/notices")).text
    assert "Friday" not in (await browser.get("/")).text


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"text": " "}, "/text"),
        ({"level": "loud"}, "/level"),
        ({"ends_at": "2000-01-01T08:00"}, "/ends_at"),
        ({"starts_at": "2100-01-02T08:00", "ends_at": "2100-01-01T08:00"}, "/ends_at"),
        ({"ko": "x" * 1001}, "/texts/ko"),
    ],
)
async def test_what_is_wrong_with_a_notice_is_said_of_its_field(
    ready: Cluster, browser: httpx.AsyncClient, changes: dict[str, str], place: str
) -> None:
    wrong = await browser.post("/notices", data={**NOTICE, **changes}, headers=PART)
    assert wrong.status_code == 422
    assert [told.get("pointer", told.get("where")) for told in wrong.json()["errors"]] == [place]
    assert await ok(ready.admin.get(f"{V1}/notices")) == []


async def test_members_neither_see_nor_use_the_page(ready: Cluster) -> None:
    async with await ready.user("alice") as alice:
        assert (await alice.get("/notices", headers=PAGE)).status_code == 403
        assert (await alice.post("/notices", data=NOTICE, headers=PART)).status_code == 403
        assert 'href="/notices"' not in (await alice.get("/", headers=PAGE)).text


@pytest.mark.usefixtures("marked")
async def test_no_text_of_the_page_goes_past_translation(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await browser.post("/notices", data={**NOTICE, "text": "a-notice"}, headers=PART)
    assert unmarked((await browser.get("/notices")).text) <= {"a-notice", "admin"}
