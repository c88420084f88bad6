"""The console for whoever does without a mouse, a large screen, English, or eyes: every page in each role."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from tests.browser import findings, follow, moved
from tests.integration.test_console import PASSWORD, V1, Site, browser, ok, site

__all__ = ["site"]

READERS = {"admin": "en", "auditor": "ko", "boss": "ja", "manager": "zh", "member": "th"}
"""Who looks at the pages, in which language; the boss is the administrator of a domain."""
Look = tuple[Literal["light", "dark"], int]
LOOKS: tuple[Look, ...] = (("dark", 360), ("light", 1280), ("dark", 1280), ("light", 360))
WIDE: Look = ("light", 2560)
SEEN = ((*LOOKS, WIDE), LOOKS[1:2], LOOKS[2:3], LOOKS[3:], LOOKS[:1])
"""In which colours and on how wide a screen each of these looks: the administrator, who sees all pages, in each way."""
DETAILS = "main tbody th a[href^='/'], main .tabs a[href^='/']"
FOCUSED = """
() => {
    const { activeElement: at } = document;
    const { outlineStyle, outlineWidth } = getComputedStyle(at);
    const { left, right, top, bottom, width } = at.getBoundingClientRect();
    const seen = width > 0 && left >= 0 && right <= innerWidth && top < innerHeight && bottom > 0;
    return { name: at.name || at.textContent.trim(), shown: seen && outlineStyle !== "none" && outlineWidth !== "0px" };
}
"""
"""What has the keyboard, and whether people see that."""
AT = "() => [document.activeElement.textContent.trim(), document.activeElement.closest('[id]').id]"
"""What has the keyboard, and in which part of the page."""
STILL = 0.1
"""What browsers call a page that moves so little that nobody minds."""


@pytest.fixture(scope="module")
def peopled(site: Site) -> Site:
    """A site with people of each role and something on every page."""
    ok(site.admin.post(f"{V1}/user-policies", json={"name": "students", "max_gpu_milli": 4000}))
    ok(site.admin.post(f"{V1}/domains", json={"name": "acme", "policy": "students"}))
    ok(site.admin.post(f"{V1}/resource-groups", json={"name": "everything", "nodes": ["worker1"], "open": True}))
    rules = [{"calls": ["ptrace", "process_vm_readv"], "ends": True}]
    ok(site.admin.post(f"{V1}/sandboxes", json={"name": "strict", "rules": rules, "projects": ["team-a"]}))
    people = {"auditor": {"role": "auditor"}, "boss": {"role": "admin", "domain": "acme"}, "manager": {}, "member": {}}
    for name, more in people.items():
        ok(site.admin.post(f"{V1}/users", json={"name": name, "password": PASSWORD, **more}))
    ok(site.admin.patch(f"{V1}/projects/team-a", json={"managers": ["manager"], "members": ["member", "admin"]}))
    site.submit("running", ports=[8888])
    for name in ("large", "waiting"):
        site.submit(name, gpu_milli=4000, preemptible=False)
    site.back_up()
    return site


def pages_of(page: Page, site: Site) -> Iterator[str]:
    """Go to each page that leads on from the start page, and to the first of what each of them lists."""
    page.goto(f"{site.url}/")
    seen = {"/docs"}
    to_see = ["/", *_addresses(page, "header a")]
    while to_see:
        address = to_see.pop(0)
        if address not in seen:
            seen.add(address)
            page.goto(site.url + address)
            yield address
            to_see += _addresses(page, DETAILS)[:1] if "/" not in address[1:] else []
    page.goto(f"{site.url}/nothing-here")
    yield "/nothing-here"


def _addresses(page: Page, selector: str) -> list[str]:
    found: list[str] = page.eval_on_selector_all(selector, "all => all.map(each => each.getAttribute('href'))")
    return [address for address in found if address.startswith("/")]


@pytest.mark.parametrize(
    ("name", "language", "looks"), [(*who, looks) for who, looks in zip(READERS.items(), SEEN, strict=True)]
)
def test_every_page_can_be_read_in_each_role(peopled: Site, name: str, language: str, looks: Sequence[Look]) -> None:
    """In both colours, on a narrow and on a wide screen: each page in all of these, and each role in one at least."""
    with browser(peopled, 360) as window:
        page = window.page
        page.set_extra_http_headers({"Accept-Language": language})
        signed_in(page, peopled, name)
        wrong = {}
        for address in pages_of(page, peopled):
            assert page.locator("html").get_attribute("lang") == language
            for colours, width in looks:
                window.look(colours, width)
                window.show(f"{name}{address.partition('?')[0].replace('/', '-')}-{colours}")
                if found := findings(page):
                    wrong[address, colours, width] = found
        assert wrong == {}
        window.faults[:] = [fault for fault in window.faults if "404 (Not Found)" not in fault]
        page.evaluate("document.querySelector('main').append(document.createElement('input'))")
        assert [found.partition(":")[0] for found in findings(page)] == ["label"], "axe looks"


def test_a_member_sees_the_own_place_in_the_queue_and_of_others_how_many_there_are(peopled: Site) -> None:
    ok(peopled.admin.post(f"{V1}/projects", json={"name": "team-b", "quota_milli": 0, "period": {"ends_at": None}}))
    peopled.submit("hidden", project="team-b", gpu_milli=4000)
    with browser(peopled, 360) as window:
        page = window.page
        signed_in(page, peopled, "member")
        window.open("/")
        follow(page.get_by_role("link", name="Queue", exact=True))
        row = page.get_by_role("row").filter(has_text="waiting")
        expect(row.get_by_role("cell").first).to_have_text(re.compile("[1-9]"))
        expect(row.locator("small")).not_to_be_empty()
        expect(page.locator("main")).to_contain_text("1 waits that you do not see.")
        expect(page.locator("main")).not_to_contain_text("hidden")
        expect(page.get_by_text("What was decided last")).to_have_count(0)
        window.show("queue-of-a-member")


def test_a_page_that_changes_by_itself_keeps_still(peopled: Site) -> None:
    with browser(peopled, 1280) as window:
        page = window.page
        signed_in(page, peopled, "admin")
        for path in ("/sessions", "/overview", "/queue"):
            window.open(path)
            page.locator("#live a").last.focus()
            before = page.evaluate(AT)
            name = f"new-on-{path[1:]}"
            peopled.submit(name, gpu_milli=4000, preemptible=False)
            page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
            expect(page.get_by_text(name).first).to_be_visible()
            assert moved(page) <= STILL, path
            assert page.evaluate(AT) == before, "focus stays where it was"
        page.evaluate("document.querySelector('main').style.marginTop = '400px'")
        assert moved(page) > STILL, "what moves is seen"


def test_buttons_do_not_fade_while_a_page_asks_for_news(peopled: Site) -> None:
    with browser(peopled, 1280) as window:
        page = window.page
        signed_in(page, peopled, "admin")
        window.open("/domains")
        page.locator("#live").evaluate("live => live.classList.add('htmx-request')")
        shown = page.locator("#live .danger").first.evaluate("button => getComputedStyle(button).opacity")
        assert shown == "1"


def test_a_user_gets_along_without_a_mouse(peopled: Site) -> None:
    with browser(peopled, 1280) as window:
        page, keys = window.page, window.page.keyboard
        page.on("dialog", lambda dialog: dialog.accept())
        window.open("/login?next=/launch")
        expect(page.get_by_label("Name", exact=True)).to_be_focused()
        for words in ("member", PASSWORD):
            keys.type(words)
            keys.press("Tab")
        keys.press("Enter")
        page.wait_for_url(f"{peopled.url}/launch")
        expect(page.get_by_label("Name", exact=True)).to_be_focused()
        keys.type("by-keys")
        seen = []
        for _ in range(30):
            keys.press("Tab")
            about = page.evaluate(FOCUSED)
            seen.append(about["name"])
            assert about["shown"], about
            if about["name"] == "share":
                keys.press("ArrowRight")
            if about["name"] == "Launch":
                break
        assert seen[-1] == "Launch", seen
        keys.press("Enter")
        page.wait_for_url(f"{peopled.url}/sessions/by-keys?project=team-a")
        keys.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        expect(page.locator(".skip")).to_be_in_viewport()
        keys.press("Enter")
        expect(page.locator("#content")).to_be_focused()
        page.get_by_role("button", name="End", exact=True).focus()
        keys.press("Enter")
        expect(page.locator("dl .state")).to_have_text("ended")


def test_the_slider_ends_where_the_chosen_project_does(peopled: Site) -> None:
    ok(peopled.admin.post(f"{V1}/projects", json={"name": "narrow", "quota_milli": 500, "period": {"ends_at": None}}))
    with browser(peopled, 360) as window:
        page = window.page
        signed_in(page, peopled, "admin")
        window.open("/launch?project=team-a")
        expect(page.locator("#check")).to_be_empty()
        page.get_by_label("GPUs of each container", exact=True).press("End")
        expect(page.locator("output")).to_have_text("4")
        project = page.get_by_label("Project", exact=True)
        project.focus()
        project.select_option("narrow")
        expect(page.locator("output")).to_have_text("0.5")
        expect(project).to_be_focused()
        expect(page.locator("#check")).not_to_contain_text("may hold")
        expect(page.locator("#check")).not_to_be_empty()
        assert moved(page) <= STILL


def signed_in(page: Page, site: Site, name: str) -> None:
    """Sign somebody in without the login page."""
    answer = page.request.post(f"{site.url}{V1}/auth/login", data={"name": name, "password": PASSWORD})
    assert answer.ok, answer.text()


def test_what_somebody_fills_in_stays_while_the_page_brings_itself_up_to_date(peopled: Site) -> None:
    peopled.submit("limited", limit_s=7200)
    with browser(peopled, 1280) as window:
        page = window.page
        signed_in(page, peopled, "admin")
        window.open("/sessions/limited?project=team-a")
        hours, share = page.get_by_label("Hours more"), page.get_by_label("GPU share")
        expect(page.locator("dl .state")).to_have_text("running")
        hours.evaluate("field => field.max = ''")
        hours.fill("99999999")
        page.get_by_role("button", name="Extend").click()
        expect(page.locator("#problem-hours")).to_be_visible()
        share.select_option("250")
        share.evaluate("field => field.blur()")
        brought_up_to_date(page)
        expect(page.locator("#problem-hours")).to_be_visible()
        expect(hours).to_have_value("99999999")
        expect(share).to_have_value("250")
        page.get_by_role("button", name="Resize").click()
        expect(hours).to_have_value("99999999")
        peopled.until(lambda: session(peopled, "limited")["gpu_milli"] == 250)
        hours.fill("3")
        page.get_by_role("button", name="Extend").click()
        expect(hours).to_have_value("1")
        brought_up_to_date(page)
        expect(share).to_have_value("250")


def test_a_choice_that_is_sent_at_once_waits_while_keys_pass_others(peopled: Site) -> None:
    with browser(peopled, 1280) as window:
        page, keys = window.page, window.page.keyboard
        signed_in(page, peopled, "member")
        window.open("/")
        document, menu = page.locator("html"), page.locator("select[name=language]")
        menu.focus()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
        for _ in range(3):
            keys.press("ArrowDown")
        expect(menu).to_have_value("ja")
        expect(menu).to_be_focused()
        assert asked == []
        keys.press("Enter")
        expect(document).to_have_attribute("lang", "ja")
        menu.focus()
        keys.press("Home")
        expect(menu).to_have_value("")
        keys.press("Tab")
        expect(document).to_have_attribute("lang", "en")
        assert asked == [f"{peopled.url}/language"] * 2


def brought_up_to_date(page: Page) -> None:
    """Let the part of a page that changes be shown anew, as if something of it had changed."""
    with page.expect_response(lambda answer: "hx-request" in answer.request.headers and answer.ok):
        page.evaluate("document.getElementById('live').dataset.version = ''")
        page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
    expect(page.locator("#live")).not_to_have_attribute("data-version", "")


def session(site: Site, name: str) -> dict[str, Any]:
    """Return a session as the API tells it."""
    found: dict[str, Any] = ok(site.admin.get(f"{V1}/sessions/{name}", params={"project": "team-a"}))
    return found
