"""Notices: administrators write and end them, everybody is told them while they are in force."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from api.clock import now
from api.resources.notices import service
from tests.api.cluster import V1, Cluster, ok, refused, sign_in
from tests.api.console.conftest import PAGE

pytestmark = pytest.mark.anyio

NOTICES = f"{V1}/notices"


async def tell(cluster: Cluster, text: str, **more: Any) -> dict[str, Any]:
    return dict(await ok(cluster.admin.post(NOTICES, json={"text": text, **more})))


def after(hours: float) -> str:
    return (now() + timedelta(hours=hours)).isoformat()


async def test_everybody_reads_what_is_in_force_and_who_writes_it_what_comes(cluster: Cluster) -> None:
    await tell(cluster, "at once")
    await tell(cluster, "no mail", level="outage", ends_at=after(1))
    await tell(cluster, "later", starts_at=after(1))
    async with await cluster.user("alice") as alice:
        assert [each["text"] for each in await ok(alice.get(NOTICES))] == ["no mail", "at once"]
    assert [each["text"] for each in await ok(cluster.admin.get(NOTICES))] == ["no mail", "at once", "later"]


async def test_a_notice_is_over_when_its_time_is_or_when_it_is_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = await tell(cluster, "short", ends_at=after(1)), await tell(cluster, "long")
    async with cluster.database.reading() as db:
        told = await service.listed(db, now() + timedelta(hours=2))
    assert [str(each.id) for each in told] == [long["id"]]
    await ok(cluster.admin.delete(f"{NOTICES}/{long['id']}"))
    assert [each["id"] for each in await ok(cluster.admin.get(NOTICES))] == [short["id"]]
    await refused(cluster.admin.delete(f"{NOTICES}/{long['id']}"), 404)


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"text": ""}, "text"),
        ({"text": " \n\u3000"}, "text"),
        ({"text": "x" * 1001}, "text"),
        ({"level": "loud"}, "level"),
        ({"ends_at": after(-1)}, "ends_at"),
        ({"texts": {"fr": "demain"}}, "texts.fr"),
        ({"texts": {"ko": " "}}, "texts.ko"),
    ],
)
async def test_bad_notices(cluster: Cluster, more: dict[str, Any], where: str) -> None:
    error = await refused(cluster.admin.post(NOTICES, json={"text": "tomorrow", **more}), 422)
    assert error["where"].startswith(where)
    assert await ok(cluster.admin.get(NOTICES)) == []


async def test_a_notice_does_not_end_before_it_begins(cluster: Cluster) -> None:
    error = await refused(
        cluster.admin.post(NOTICES, json={"text": "x", "starts_at": after(2), "ends_at": after(1)}), 422
    )
    assert (error["where"], error["reason"]) == ("ends_at", "it would end before it begins")


async def test_there_are_no_more_notices_than_anybody_reads(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST", 1)
    await tell(cluster, "one")
    await refused(cluster.admin.post(NOTICES, json={"text": "two"}), 409)


async def test_pages_tell_it_in_the_language_of_the_reader_and_to_nobody_else(cluster: Cluster) -> None:
    made = await tell(cluster, "<b>tomorrow</b>", texts={"ko": "내일 점검"}, level="warning")
    await tell(cluster, "later", starts_at=after(1))
    async with cluster.client(**PAGE) as browser:
        assert "tomorrow" not in (await browser.get("/login")).text
        await sign_in(browser, "admin")
        for path in ("/", "/nodes", "/sessions/none?project=team-a"):
            page = (await browser.get(path)).text
            assert '<li class="warning">&lt;b&gt;tomorrow&lt;/b&gt;</li>' in page, "pages that say what is wrong, too"
            assert "later" not in page
        await ok(browser.patch(f"{V1}/auth/me", json={"language": "ko"}))
        assert '<li class="warning">내일 점검</li>' in (await browser.get("/")).text
        await ok(cluster.admin.delete(f"{NOTICES}/{made['id']}"))
        assert 'class="told"' not in (await browser.get("/")).text


async def test_pages_ask_the_database_for_notices_once_in_a_while(
    cluster: Cluster, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "REMEMBERED_S", 3600.0)
    async with cluster.client(**PAGE) as browser:
        await sign_in(browser, "admin")
        statements.clear()
        for _ in range(5):
            await browser.get("/projects")
    assert len([each for each in statements if "FROM notices" in each]) == 1


async def test_who_wrote_a_notice_and_what_it_said_is_in_the_audit_log(audited: Cluster) -> None:
    made = await tell(audited, "tomorrow", ends_at=after(1))
    await ok(audited.admin.delete(f"{NOTICES}/{made['id']}"))
    await audited.settle()
    found = await ok(audited.admin.get(f"{V1}/audit"))
    changes = [change for entry in found for change in entry["changes"] if change["kind"] == "notices"]
    assert {(change["after"] or change["before"])["text"] for change in changes} == {"tomorrow"}
    assert len(changes) == 2
    assert datetime.fromisoformat(made["starts_at"]) <= now()
