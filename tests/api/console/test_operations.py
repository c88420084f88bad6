"""The pages of operations: checks that are not well, repairs and backups that are ordered, the audit log."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from api.console import audit, checks
from api.endpoints.access import SEEN_HEADER
from api.resources.audit import service
from common.check_protocol import CheckReport
from common.checks import CheckState
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.console.conftest import PAGE
from tests.api.console.test_languages import unmarked
from tests.api.console.test_pages import version_of
from tests.api.resources.backups.test_backups import ONE, backup, tell
from tests.api.resources.repairs.test_repairs import STEP, heard_before, run

pytestmark = pytest.mark.anyio

PART = {"HX-Request": "true"}
FULL = CheckReport(
    id="disk",
    name="disk has room",
    state=CheckState.FAIL,
    thing="/",
    evidence="97 % is full",
    hint="look at `du`",
    repair="5-C",
    since=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
async def operator(ordering: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """A browser in which the administrator is signed in, on a site whose controller takes orders."""
    async with ordering.client(**PAGE) as client:
        await sign_in(client, "admin")
        yield client


async def test_a_check_that_is_not_well_is_acknowledged_told_of_again_and_cleared(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    assert "97 % is full" not in (await browser.get("/health/checks")).text
    await ready.heartbeat(checks=[FULL])
    await ready.settle()
    page = (await browser.get("/health/checks")).text
    assert "97 % is full" in page
    assert "takes nothing new" in page
    assert 'href="/repairs?repair=5-C&amp;node=worker1"' in page
    assert "97 % is full" in (await browser.get("/health/checks?state=fail&node=worker1")).text
    assert "No check is so." in (await browser.get("/health/checks?state=warn&node=worker1")).text
    (check,) = (each for each in await ok(ready.admin.get(f"{V1}/health/checks")) if each["check"] == "disk")
    here = f"/health/checks/{check['id']}"

    page = (await browser.get("/health/checks")).text
    assert f'href="{here}"' in page
    own = (await browser.get(here)).text
    assert "97 % is full" in own
    assert all(f'name="{field}"' in own for field in ("hours", "comment"))
    known = await browser.post(f"{here}/acknowledgement", data={"hours": "2", "comment": "<b>I look</b>"}, headers=PART)
    assert (known.status_code, known.headers["hx-trigger"]) == (204, "refresh")
    page = (await browser.get("/health/checks")).text
    assert "admin knows of it until" in page
    assert "&lt;b&gt;I look" in page
    assert (await browser.post(f"{here}/acknowledgement/end", headers=PART)).status_code == 204
    assert "knows of it" not in (await browser.get("/health/checks")).text
    assert (await browser.post(f"{here}/clear", headers=PART)).status_code == 204
    assert "97 % is full" not in (await browser.get("/health/checks")).text.partition("What has changed")[0]
    assert (await browser.post(f"{here}/acknowledgement", data={"hours": "0"}, headers=PART)).status_code == 422


async def test_the_worst_checks_are_shown_and_the_others_counted_without_being_read(
    ready: Cluster, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = (CheckState.OK, CheckState.WARN, CheckState.FAIL, CheckState.UNKNOWN)
    every = [FULL.model_copy(update={"thing": f"/{state}", "state": state}) for state in states]
    await ready.heartbeat(checks=every)
    await ready.settle()
    monkeypatch.setattr(checks, "SHOWN", 2)
    page = (await browser.get("/health/checks?node=worker1")).text.partition("What has changed")[0]
    assert re.findall(r"disk has room: /(\w+)", page) == ["fail", "unknown"]
    assert "and 1 more" in page
    # what is well says nothing else on this page, and on its own
    for path, status in (("/health/checks?node=worker1", 204), ("/health/checks?node=worker1&state=ok", 200)):
        seen = {**PART, SEEN_HEADER: version_of((await browser.get(path)).text)}
        every[0] = every[0].model_copy(update={"evidence": f"{status} is full"})
        await ready.heartbeat(checks=every)
        await ready.settle()
        assert (await browser.get(path, headers=seen)).status_code == status


async def test_a_repair_is_ordered_and_shown_while_it_runs(
    ordering: Cluster,
    controller: httpx.AsyncClient,
    operator: httpx.AsyncClient,
) -> None:
    page = (await operator.get("/repairs?repair=5-C&node=m1")).text
    assert re.search(r'<option value="5-C" lang="en" selected>', page)
    assert 'value="m1"' in page
    ordered = await operator.post("/repairs", data={"repair": "5-A", "node": "m1", "dry_run": "true"}, headers=PART)
    assert ordered.status_code == 204
    path = ordered.headers["hx-redirect"]
    assert "No step is done yet." in (await operator.get(path)).text
    order = (await tell(controller))["order"]
    assert (order["repair"], order["limit"], order["dry_run"], order["agreed"]) == ("5-A", "m1", True, False)
    await tell(
        controller, runs=[run(id=order["id"], state="rehearsed", steps=[STEP], sick=["m1"], reason="it is there")]
    )
    page = (await operator.get(path)).text
    assert "Start the edge: changed" in page
    assert "found, nothing done" in page
    assert "it is there" in (await operator.get("/repairs")).text
    unknown = (await operator.get("/repairs?repair=5-Z9&node=m1")).text
    assert re.findall(r"<option[^>]* selected>([^<]*)<", unknown) == ["This site knows no repair 5-Z9"]
    mere = await operator.post("/repairs", data={"repair": "5-A"}, headers=PART)
    assert (await tell(controller))["order"]["dry_run"], "a repair is said"
    await tell(controller, runs=[run(id=mere.headers["hx-redirect"].rpartition("/")[2], state="rehearsed")])
    await ordering.settle()
    told, _ = await ok(ordering.admin.get(f"{V1}/audit", params={"object": "repairs/5-A/runs"}))
    assert (told["action"], told["result"]) == ("repair_run", "done")
    refused = await operator.post("/repairs", data={"repair": "5-Z"}, headers=PART)
    assert (refused.status_code, "no repair 5-Z" in refused.text) == (404, True)
    wrong = await operator.post("/repairs", data={"repair": "5-A", "node": "a b"}, headers=PART)
    assert [told["pointer"] for told in wrong.json()["errors"]] == ["/limit"]


async def test_a_backup_is_ordered_and_its_bad_ones_are_told(
    ordering: Cluster,
    controller: httpx.AsyncClient,
    operator: httpx.AsyncClient,
) -> None:
    assert "has told of no backup yet" in (await operator.get("/backups")).text
    await tell(controller, backups=[backup(ONE, good=False, problem="the disk is full", size=3 << 30)])
    page = (await operator.get("/backups")).text
    assert "the disk is full" in page
    assert "3 GiB" in page
    for action, name in (("now", ""), ("verify", ONE)):
        placed = await operator.post("/backups", data={"action": action, "backup": name}, headers=PART)
        assert placed.status_code == 204
        order = (await tell(controller))["backup_order"]
        assert (order["action"], order["backup"]) == (action, name or None)
        await tell(controller, backup_orders=[order | {"state": "done", "seconds": 2.5}])
    assert "2.5" in (await operator.get("/backups")).text
    assert (await operator.post("/backups", data={"action": "restore"}, headers=PART)).status_code == 422


async def test_what_waits_is_called_back_and_who_ordered_is_told_of_a_silent_controller(
    ordering: Cluster, controller: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    repair = (await operator.post("/repairs", data={"repair": "5-A"}, headers=PART)).headers["hx-redirect"]
    await operator.post("/backups", data={"action": "now"}, headers=PART)
    pages = {
        "/repairs": f"{repair}/cancel",
        repair: f"{repair}/cancel",
        "/backups": r"/backups/orders/[0-9a-f-]+/cancel",
    }
    for path in pages:
        assert "Nothing was heard of the controller yet" in (await operator.get(path)).text
    await tell(controller, nodes=[], wants=False)
    for path, cancel in pages.items():
        page = (await operator.get(path)).text
        assert "The controller was last heard of at" in page
        assert re.search(f'hx-post="{cancel}"', page)
    await heard_before(ordering, timedelta(minutes=5))
    found = {
        path: re.findall(f'hx-post="({cancel})"', (await operator.get(path)).text) for path, cancel in pages.items()
    }
    for path in pages:
        assert "Nothing was heard of the controller since 20" in (await operator.get(path)).text
    for path, name in (("/repairs", "repair_run"), ("/backups", "backup_order")):
        (address,) = found[path]
        answer = await operator.post(address, headers=PART)
        assert (answer.status_code, answer.headers["hx-trigger"]) == (204, "refresh")
        page = (await operator.get(path)).text
        assert (">cancelled<" in page, address in page) == (True, False)
        assert (await operator.post(address, headers=PART)).status_code == 409
        await ordering.settle()
        lines = await ok(ordering.admin.get(f"{V1}/audit", params={"action": name, "result": "done"}))
        placed = address.split("/")[-2]
        kind = "repair-runs" if path == "/repairs" else "backup-orders"
        assert lines[0]["object"] == f"{kind}/{placed}/cancel"
    assert "Call back" not in (await operator.get(repair)).text


async def test_a_repair_of_a_node_that_nobody_knows_is_refused_beside_the_field(
    controller: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await tell(controller, nodes=[{"node": "m1", "checks": [FULL.model_dump(mode="json")]}])
    refused = await operator.post("/repairs", data={"repair": "5-A", "node": "m2"}, headers=PART)
    assert refused.status_code == 404
    assert [(told["where"], told["detail"]) for told in refused.json()["errors"]] == [
        ("limit", "the site has no node m2")
    ]


async def test_without_a_controller_pages_say_where_to_go(browser: httpx.AsyncClient) -> None:
    for path, command in (("/repairs", "penstock repair run"), ("/backups", "penstock backup now")):
        page = (await browser.get(path)).text
        assert command in page
        assert f'hx-post="{path}"' not in page


async def test_the_audit_log_is_searched_page_by_page(audited: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async with audited.client(**PAGE) as browser:
        await sign_in(browser, "admin")
        await audited.add_project("vision", 1000)
        await ok(audited.admin.patch(f"{V1}/projects/vision", json={"quota_milli": 3000}))
        await audited.add_project("later", 1000)
        await audited.settle()
        page = (await browser.get("/audit?object=projects/vision&user=admin&since=2026-01-01")).text
        assert "quota_milli: 1000 → 3000" in page
        assert "Older ones" not in page
        assert "The log has no such line." in (await browser.get("/audit?user=nobody")).text
        assert "The log has no such line." in (await browser.get("/audit?until=2026-01-01")).text
        monkeypatch.setattr(audit, "SHOWN", 2)
        monkeypatch.setattr(service, "LOOKED_AT", 1)
        page = (await browser.get("/audit?user=nobody")).text
        assert "The log has no such line." not in page
        assert "go on among older ones" in page
        monkeypatch.undo()
        monkeypatch.setattr(audit, "SHOWN", 2)
        address, lines = "/audit", list[str]()
        while address:
            page = (await browser.get(address)).text
            assert ('href="/audit?"' in page) is ("after=" in address), "there is a way back to the newest"
            lines += re.findall(r'id="l-(\d+)"', page)
            older = re.search(r'href="(/audit\?[^"]*after=\d+)"', page)
            address = older[1].replace("&amp;", "&") if older else ""
        assert lines == sorted(lines, key=int, reverse=True)
        assert len(lines) == len(set(lines)) > 3
        assert "quota_milli: 1000 → 3000" in (await browser.get("/audit?user=%20admin%20&project=Vision")).text
        no_name, no_day = "Nothing is called so", "This is no day"
        for wrong, said in (("since=yesterday", no_day), ("action=A%20B", no_name), ("user=a%01b", no_name)):
            refused = await browser.get(f"/audit?object=projects/vision&{wrong}")
            assert refused.status_code == 422
            assert {each for each in (no_name, no_day) if each in refused.text} == {said}
            assert f'id="problem-{wrong.partition("=")[0]}"' in refused.text
            assert 'value="projects/vision"' in refused.text, "what was typed is kept"
        for wrong in ("after=x", "result=good"):
            assert (await browser.get(f"/audit?{wrong}")).status_code == 422
        await audited.settle()
        assert "audit_read" in (await browser.get("/audit?action=audit_read")).text


async def test_lines_of_callers_that_nobody_knows_lead_nowhere(audited: Cluster) -> None:
    async with audited.client() as guest:
        await guest.post(f"{V1}/projects", json={})
    await audited.settle()
    async with audited.client(**PAGE) as browser:
        await sign_in(browser, "admin")
        page = (await browser.get("/audit")).text
    assert 'href="/audit?user="' not in page
    assert re.search(r"<time>20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC</time>", page)


async def test_files_of_the_audit_log_are_listed_downloaded_and_verified(audited: Cluster) -> None:
    await audited.add_project("vision", 1000)
    await audited.settle()
    async with audited.client(**PAGE) as browser:
        await sign_in(browser, "admin")
        assert 'href="/audit/files"' in (await browser.get("/audit")).text
        page = (await browser.get("/audit/files")).text
        (day,) = set(re.findall(r'href="/api/v1/audit/files/(\d{8})"', page))
        assert 'hx-get="/audit/verification"' in page
        verified = (await browser.get("/audit/verification", headers=PART)).text
        assert "1 line as it was written" in verified
        path = next(audited.app.state.audit_log._folder.glob("*.log"))
        path.write_bytes(path.read_bytes().replace(b"vision", b"vixion"))
        verified = (await browser.get("/audit/verification", headers=PART)).text
        assert day in verified
        assert "not as it was written" in verified
    async with await audited.user("alice") as member:
        for path in ("/audit/files", "/audit/verification"):
            assert (await member.get(path, headers=PAGE)).status_code == 403


async def test_no_link_of_another_site_has_the_whole_log_verified(audited: Cluster) -> None:
    gone_to = {**PAGE, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with audited.client() as browser:
        await sign_in(browser, "admin")
        for site, code in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            answer = await browser.get("/audit/verification", headers=gone_to | {"Sec-Fetch-Site": site})
            assert answer.status_code == code, site
        led = await browser.get("/audit/files", headers=gone_to | {"Sec-Fetch-Site": "cross-site"})
        assert led.status_code == 200, "a list costs little"


async def test_members_have_none_of_these_pages(ready: Cluster) -> None:
    async with await ready.user("alice") as member:
        home = (await member.get("/", headers=PAGE)).text
        for path in ("/health/checks", "/repairs", "/backups", "/audit"):
            assert f'href="{path}"' not in home
            assert (await member.get(path, headers=PAGE)).status_code == 403


@pytest.mark.usefixtures("marked")
async def test_no_text_of_these_pages_goes_past_translation(
    ordering: Cluster,
    controller: httpx.AsyncClient,
    operator: httpx.AsyncClient,
) -> None:
    await ordering.add_node()
    await ordering.heartbeat(checks=[FULL])
    await ordering.settle()
    ordered = await operator.post("/repairs", data={"repair": "5-A"}, headers=PART)
    order = (await tell(controller))["order"]
    await tell(
        controller, runs=[run(id=order["id"], state="rehearsed", steps=[STEP], sick=["m1"], reason="it is there")]
    )
    await tell(controller, backups=[backup(ONE, good=False, problem="the disk is full")])
    await operator.post("/backups", data={"action": "verify", "backup": ONE}, headers=PART)
    (check,) = (each for each in await ok(ordering.admin.get(f"{V1}/health/checks")) if each["check"] == "disk")
    health = ("/health/checks", f"/health/checks/{check['id']}")
    log = ("/audit", "/audit/files", "/audit/verification")
    for path in (*health, "/repairs", ordered.headers["hx-redirect"], "/backups", *log):
        assert unmarked((await operator.get(path)).text) <= {"projects", "vision"}, path


async def test_a_name_in_any_script_leads_to_its_lines(audited: Cluster) -> None:
    """Whoever tries to sign in may be called anything, and so may a key."""
    name = "홍 길동\u202e"
    async with audited.client(**PAGE) as browser:
        await sign_in(browser, "admin")
        await ok(browser.post(f"{V1}/api-keys", json={"name": name}))
        await audited.settle()
        (address,) = re.findall(r'href="(/audit\?object=api-keys/[^"]+)"', (await browser.get("/audit")).text)
        found = await browser.get(address)
    assert found.status_code == 200, "a link of ours is understood"
    assert len(re.findall(r'<tr id="l-', found.text)) == 1
    params = {"object": f"api-keys/{name}"}
    assert len(await ok(audited.admin.get(f"{V1}/audit", params=params))) == 1
