"""The console in a real browser: a user's way and an administrator's, on a narrow and on a wide screen."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import ConsoleMessage, Page, expect

from common.protocol import HEARTBEAT_PATH, METRICS_PATH
from common.repair_protocol import CONTROLLER, CONTROLLER_PATH
from tests import forks
from tests.browser import follow, new_page, sign_in
from tests.fakes.heartbeats import node_info
from tests.integration.agent.conftest import free_port
from tests.postgresql import new_database

PASSWORD = "Correct1horse!"
V1 = "/api/v1"
WIDTHS = (360, 1280)
NOISE = ("401", "403", "422", "409", "htmx:sendAbort", "htmx:afterRequest")
"""What browser and htmx make a note of that is no fault: a refused form is told by its status, and who goes to another
page ends what this one still asks. Of what could not be asked htmx also notes `htmx:sendError`."""
SCREENSHOTS = Path(__file__).parents[2] / "build" / "console"


class Site:
    """A control API without TLS, with two nodes that never fail, and an administrator who is signed in."""

    def __init__(self, database_url: str, folder: Path) -> None:
        port = free_port()
        self.url, self.log = f"http://127.0.0.1:{port}", folder / "api.log"
        self.environment = {
            "PATH": os.environ["PATH"],
            "PENSTOCK_API_DATABASE_URL": database_url,
            "PENSTOCK_API_PORT": str(port),
            "PENSTOCK_API_TRUST_CLIENT_HEADERS": "true",
            "PENSTOCK_API_NODE_LOST_S": "3600",
            "PENSTOCK_API_PVC_ROOT": "/srv/shared",
            "PENSTOCK_API_APPS_URL": "https://127.0.0.1:9443",
            "PENSTOCK_API_REGISTRIES": "reservoir:5000",
            "PENSTOCK_API_CONTROLLER": "true",
            "PENSTOCK_API_AUDIT_FOLDER": str(folder),
            "PENSTOCK_API_AUDIT_KEY": str(folder / "key"),
        }
        (folder / "key").write_text("a key of these tests")
        self.admin = httpx.Client(base_url=self.url, timeout=30)

    def fill(self) -> None:
        """Sign the administrator in, and make nodes, an image, a preset, a project and its people."""
        self.until(self._answers)
        login = ok(self.admin.post(f"{V1}/auth/login", json={"name": "admin", "password": PASSWORD}))
        self.admin.headers["X-CSRF-Token"] = login["csrf_token"]
        for name in ("worker1", "worker2"):
            self.report(name, 1)
        self.until(lambda: len(ok(self.admin.get(f"{V1}/nodes"))) == 2)
        user: dict[str, Any] = {"password": PASSWORD, "must_change_password": True}
        for width in WIDTHS:
            ok(self.admin.post(f"{V1}/users", json={"name": f"alice-{width}", **user}))
        members = [f"alice-{width}" for width in WIDTHS]
        period: dict[str, Any] = {"ends_at": None}
        ok(
            self.admin.post(
                f"{V1}/projects", json={"name": "team-a", "quota_milli": 4000, "members": members, "period": period}
            )
        )
        image = {"name": "python", "tag": "3.11", "reference": "reservoir:5000/penstock/python:3.11"}
        ok(self.admin.post(f"{V1}/images", json=image))
        ok(self.admin.post(f"{V1}/presets", json={"name": "half", "gpu_milli": 500}))

    def report(self, name: str, sequence: int, **addresses: str) -> None:
        """Report as the agent of a node, which has interfaces with these addresses."""
        beat: dict[str, Any] = {"name": name, "address": "127.0.0.1", "port": 6001, "boot": "b", "sequence": sequence}
        told = [{"name": interface, "addresses": [address]} for interface, address in addresses.items()]
        beat["node_info"] = {**node_info(name, 4).model_dump(mode="json"), "interfaces": told}
        agent = {"X-Client-Verify": "SUCCESS", "X-Client-Name": name}
        ok(httpx.post(self.url + HEARTBEAT_PATH, json=beat, headers=agent, timeout=60))

    def submit(self, name: str, **more: Any) -> None:
        """Put a session of the administrator into the queue."""
        body = {"name": name, "project": "team-a", "image": "python", "gpu_milli": 500, **more}
        ok(self.admin.post(f"{V1}/sessions", json=body))

    def measure(self, address: str) -> None:
        """Report as an agent what the session of a page has used of its GPU."""
        url = httpx.URL(address)
        session = ok(self.admin.get(V1 + url.path, params=url.params))
        (container,) = session["containers"]
        samples = [
            {
                "container_id": f"session-{session['id']}-0-0",
                "session_id": session["id"],
                "uuid": container["gpus"][0]["uuid"],
                "at": (datetime.now(UTC) - timedelta(seconds=15 * number)).isoformat(),
                "memory_mib": 2048,
                "busy_permille": 400,
                "processes": 1,
            }
            for number in range(2, 20)
        ]
        agent = {"X-Client-Verify": "SUCCESS", "X-Client-Name": container["node"]}
        report = {"name": container["node"], "samples": samples}
        httpx.post(self.url + METRICS_PATH, json=report, headers=agent, timeout=60).raise_for_status()

    def back_up(self) -> None:
        """Tell of a backup and of a node without an agent as the controller, and order another backup."""
        backup = {
            "name": "penstock-20261122-020000",
            "time": "2026-11-22T02:00:00Z",
            "good": True,
            "rows": 7,
            "size": 5,
        }
        controller = {"X-Client-Verify": "SUCCESS", "X-Client-Name": CONTROLLER}
        check = {"id": "disk", "name": "disk has room", "state": "fail", "thing": "/", "evidence": "97 % is full"}
        told = {"backups": [backup], "nodes": [{"node": "storage1", "checks": [check]}]}
        httpx.post(self.url + CONTROLLER_PATH, json=told, headers=controller, timeout=60).raise_for_status()
        placed = self.admin.post(f"{V1}/backup-orders", json={"action": "now"})
        assert placed.status_code in (201, 409), placed.text

    def until(self, condition: Callable[[], Any], timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()[-5000:]
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return self.admin.get("/health").status_code == 200
        except httpx.TransportError:
            return False


def ok(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def site(postgresql_server: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(new_database(postgresql_server), tmp_path_factory.mktemp("console"))
    for words in (("migrate",), ("create-admin", "--name", "admin")):
        forks.run([sys.executable, "-m", "api", *words], running.environment, PASSWORD, check=True)
    with running.log.open("wb") as log:
        api = forks.start([sys.executable, "-m", "tests.fakes.api"], env=running.environment, stdout=log, stderr=log)
    try:
        running.fill()
        yield running
    finally:
        running.admin.close()
        api.terminate()
        api.wait(60)


class Browser:
    """A page of a browser, and all that it did which no page of ours may do."""

    def __init__(self, page: Page, site: Site, width: int) -> None:
        self.page, self.site, self.width = page, site, width
        self.faults: list[str] = []
        self.look("light", width)
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.faults.append(f"error {error}"))
        page.on("request", lambda request: self._note_address(request.url))

    def open(self, path: str) -> None:
        self.page.goto(self.site.url + path)

    def look(self, colours: Literal["light", "dark"], width: int) -> None:
        """Show everything from now on in these colours, on a screen of a width."""
        self.width = width
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme=colours)

    def show(self, name: str) -> None:
        """Keep a picture of the page, which is as wide as the screen and no wider."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}-{self.width}.png", full_page=True)
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width, name

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(noise in message.text for noise in NOISE):
            self.faults.append(f"{message.type} {message.text}")

    def _note_address(self, address: str) -> None:
        if not address.startswith((f"{self.site.url}/", "data:")):
            self.faults.append(f"request {address}")


@contextmanager
def browser(site: Site, width: int) -> Iterator[Browser]:
    """Give a browser that has done nothing wrong in the end."""
    with new_page("127.0.0.1") as page:
        fresh = Browser(page, site, width)
        yield fresh
        assert fresh.faults == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_user_signs_in_launches_a_session_sees_it_run_and_ends_it(site: Site, width: int) -> None:
    with browser(site, width) as window:
        page = window.page
        window.open("/sessions?mine=1")
        expect(page).to_have_url(f"{site.url}/login?next=%2Fsessions%3Fmine%3D1")
        window.show("login")
        sign_in(page, f"alice-{width}", PASSWORD)
        page.get_by_label("New password", exact=True).fill("New1horse!")
        page.get_by_label("New password, again").fill("New1horse!")
        page.get_by_role("button", name="Change password").click()
        expect(page).to_have_url(f"{site.url}/sessions?mine=1")
        expect(page.get_by_text("No session is like that.")).to_be_visible()

        follow(page.get_by_role("link", name="Launch a session"))
        page.get_by_label("Name", exact=True).fill(f"First {width}")
        page.get_by_role("button", name="Launch", exact=True).click()
        expect(page.locator("#problem-name")).to_contain_text("lower-case letters")
        expect(page.get_by_label("Name", exact=True)).to_be_focused()
        page.get_by_label("Name", exact=True).fill(f"first-{width}")
        slider = page.get_by_label("GPUs of each container", exact=True)
        expect(page.locator("#check")).to_contain_text("Not yet:")
        slider.focus()
        for _ in range(5):
            slider.press("ArrowRight")
        expect(page.locator("output")).to_have_text("0.25")
        expect(page.locator("#check")).to_contain_text("Fits now")
        page.get_by_label("Equal sessions").fill("1000")
        expect(page.locator("#check")).to_be_empty()
        page.get_by_label("Equal sessions").fill("1")
        expect(page.locator("#check")).to_contain_text("Fits now")
        page.get_by_label("Ports of its apps").fill("8888")
        page.get_by_label("Command").fill("sleep infinity")
        window.show("launch")
        page.get_by_role("button", name="Launch", exact=True).click()

        expect(page).to_have_url(re.compile(rf"/sessions/first-{width}\?project=team-a"))
        expect(page.locator("dl .state")).to_have_text("running")
        expect(page.get_by_text("0.25 × Simulated GPU")).to_be_visible()
        expect(page.get_by_role("link", name="Open port 8888")).to_have_attribute(
            "href", f"https://127.0.0.1:9443/first-{width}-8888/"
        )
        expect(page.locator(".events .state")).to_have_text(["running", "starting", "scheduled", "waiting"])
        site.measure(page.url)
        page.reload()
        expect(page.locator(".plot figcaption")).to_contain_text("memory 2 GiB now, at most 2 GiB; in use 40 % now")
        expect(page.locator(".plot canvas")).to_be_visible()
        window.show("session")
        follow(page.get_by_role("link", name="Terminal"))
        expect(page.get_by_role("textbox", name="Terminal")).to_be_focused()
        page.keyboard.type("echo hello")
        expect(page.locator(".xterm-rows")).to_contain_text("echo hello")
        window.show("terminal")
        page.keyboard.press("Tab")
        expect(page.get_by_role("textbox", name="Terminal")).to_be_focused()
        page.keyboard.press("Control+Shift+E")
        expect(page.get_by_role("link", name="Back to the session")).to_be_focused()
        follow(page.get_by_role("link", name="Back to the session"))

        follow(page.get_by_role("link", name="Home", exact=True))
        expect(page.get_by_role("link", name=f"first-{width}")).to_be_visible()
        window.show("home")
        follow(page.get_by_role("link", name=f"first-{width}"))
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="End", exact=True).click()
        expect(page.locator("dl .state")).to_have_text("ended")
        expect(page.locator("#log")).to_contain_text("the last 256 KiB, which are kept, as a file")

        follow(page.get_by_role("link", name="Submit again"))
        expect(page.get_by_label("Name", exact=True)).to_have_value(f"first-{width}")
        expect(page.get_by_label("Command")).to_have_value("sleep infinity")
        expect(page.get_by_label("Ports of its apps")).to_have_value("8888")
        expect(page.locator("output")).to_have_text("0.25")
        expect(page.locator("#check")).to_contain_text("Fits now")
        seldom = page.locator("details")
        expect(seldom).not_to_have_attribute("open", "")
        page.get_by_text("What few need").click()
        page.get_by_label("Variables, one a line").fill("EPOCHS")
        window.show("again")
        page.get_by_text("What few need").click()
        expect(seldom).not_to_have_attribute("open", "")
        page.get_by_role("button", name="Launch", exact=True).click()
        expect(page.locator("#problem-environment")).to_contain_text("line 1 has no value")
        expect(seldom).to_have_attribute("open", "")
        expect(page.get_by_label("Variables, one a line")).to_be_focused()
        page.get_by_label("Variables, one a line").fill("EPOCHS=10")
        page.get_by_label("Memory (GiB)", exact=True).fill("-1")
        page.get_by_text("What few need").click()
        page.get_by_role("button", name="Launch", exact=True).click()
        expect(seldom).to_have_attribute("open", "")
        page.get_by_label("Memory (GiB)", exact=True).fill("")
        page.get_by_label("Containers", exact=True).fill("2")
        page.get_by_role("button", name="Launch", exact=True).click()
        expect(page).to_have_url(re.compile(rf"/sessions/first-{width}\?project=team-a"))
        expect(page.locator("dl .state")).to_have_text("running")
        page.get_by_role("link", name="container 1", exact=True).click()
        expect(page.get_by_role("link", name="container 1", exact=True)).to_have_attribute("aria-current", "true")
        window.show("session-of-two")
        page.get_by_role("button", name="End", exact=True).click()
        expect(page.locator("dl .state")).to_have_text("ended")
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url(f"{site.url}/login")


def test_a_page_is_loaded_anew_when_another_tab_has_signed_in_anew(site: Site) -> None:
    """As somebody else, it may be: whose name stands there is who the page is for."""
    account: dict[str, Any] = {"password": PASSWORD, "must_change_password": False}
    for name in ("erin", "frank"):
        ok(site.admin.post(f"{V1}/users", json={"name": name, **account}))
    with browser(site, WIDTHS[-1]) as window:
        page = window.page
        window.open("/login?next=/sessions")
        sign_in(page, "erin", PASSWORD)
        expect(page.locator(".account span")).to_have_text("erin")
        tab = page.context.new_page()
        tab.goto(f"{site.url}/login")
        sign_in(tab, "frank", PASSWORD)
        expect(tab).to_have_url(f"{site.url}/")
        expect(page.locator(".account span")).to_have_text("frank")
        assert page.url == f"{site.url}/sessions"


def test_what_happens_in_another_tab_reaches_a_page_that_is_open(site: Site) -> None:
    """A session that ends, and the end of the login; the way back shows what is there by then."""
    account: dict[str, Any] = {"password": PASSWORD, "must_change_password": False, "role": "admin"}
    ok(site.admin.post(f"{V1}/users", json={"name": "judy", **account}))
    site.submit("elsewhere")
    with browser(site, WIDTHS[-1]) as window:
        page = window.page
        window.open("/login?next=/sessions")
        sign_in(page, "judy", PASSWORD)
        follow(page.get_by_role("link", name="elsewhere", exact=True))
        expect(page.locator("dl .state")).to_have_text("running")
        tab = page.context.new_page()
        tab.goto(page.url)
        tab.on("dialog", lambda dialog: dialog.accept())
        tab.get_by_role("button", name="End", exact=True).click()
        expect(page.locator("dl .state")).to_have_text("ended")
        page.go_back()
        expect(page).to_have_url(f"{site.url}/sessions")
        expect(page.get_by_role("link", name="elsewhere", exact=True)).to_have_count(0)
        tab.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url(re.compile(r"/login\?next=%2Fsessions"))
        page.go_back()
        expect(page.get_by_label("Password", exact=True)).to_be_visible()
        expect(page.get_by_text("elsewhere")).to_have_count(0)


def test_what_is_filled_in_outlives_the_end_of_a_login(site: Site) -> None:
    """For who signs in again, at once and in that tab: nobody else is shown it, and no password is kept."""
    account: dict[str, Any] = {"password": PASSWORD, "must_change_password": False, "role": "admin"}
    for person in ("grace", "heidi"):
        ok(site.admin.post(f"{V1}/users", json={"name": person, **account}))
    with browser(site, WIDTHS[-1]) as window:
        page = window.page
        name, command = page.get_by_label("Name", exact=True), page.get_by_label("Command")

        def fill_in_and_send() -> None:
            expect(page).to_have_url(f"{site.url}/launch")
            name.fill("late-one")
            page.get_by_label("GPUs of each container", exact=True).fill("5")
            page.get_by_label("Kind").select_option("training")
            command.fill("python train.py")
            # nothing is being asked any more that would be refused before the form is
            expect(page.locator("#check")).to_contain_text("Fits now")
            page.context.clear_cookies()
            name.press("Enter")
            expect(page).to_have_url(f"{site.url}/login?next=%2Flaunch")

        window.open("/login?next=/launch")
        sign_in(page, "grace", PASSWORD)
        fill_in_and_send()
        sign_in(page, "grace", PASSWORD)
        expect(page.get_by_text("What you had filled in stands here again")).to_be_visible()
        expect(name).to_have_value("late-one")
        expect(command).to_have_value("python train.py")
        expect(page.get_by_label("Kind")).to_have_value("training")
        expect(page.locator("output")).to_have_text("0.25")
        expect(page.locator("#check")).to_contain_text("Fits now")
        page.reload()
        expect(name).to_have_value("")

        tab = page.context.new_page()
        name.fill("late-one")
        expect(page.locator("#check")).to_contain_text("without GPUs")
        tab.goto(f"{site.url}/login")
        sign_in(tab, "grace", PASSWORD)
        expect(tab).to_have_url(f"{site.url}/")
        page.get_by_role("button", name="Launch", exact=True).click()
        expect(page.get_by_text("What you had filled in stands here again")).to_be_visible()
        expect(name).to_have_value("late-one")

        fill_in_and_send()
        sign_in(page, "heidi", PASSWORD)
        expect(page.locator(".account span")).to_have_text("heidi")
        expect(name).to_have_value("")
        assert page.evaluate("sessionStorage.getItem('filled-in')") is None

        window.open("/users")
        page.get_by_label("Name", exact=True).fill("ivan")
        page.get_by_label("First password").fill(PASSWORD)
        page.context.clear_cookies()
        page.wait_for_url(f"{site.url}/login?next=%2Fusers")
        assert PASSWORD not in page.evaluate("JSON.stringify(sessionStorage)")
        sign_in(page, "heidi", PASSWORD)
        expect(page.get_by_label("Name", exact=True)).to_have_value("ivan")
        expect(page.get_by_label("First password")).to_have_value("")


def test_a_choice_that_is_refused_says_why_and_shows_again_what_holds(site: Site) -> None:
    """As that of an interface, which is sent as soon as it is made."""
    of_both = {"virbr0": "192.168.122.1"}
    site.report("worker2", 2, **of_both)
    site.report("worker1", 2, eth1="10.1.0.1", **of_both)
    site.until(lambda: ok(site.admin.get(f"{V1}/nodes/worker1"))["interfaces"])
    with browser(site, WIDTHS[-1]) as window:
        page = window.page
        window.open("/login?next=/nodes")
        sign_in(page, "admin", PASSWORD)
        page.wait_for_url(f"{site.url}/nodes")
        chosen = page.get_by_role("row").filter(has_text="worker1").get_by_label("Interface by which sessions meet")
        chosen.select_option("eth1")
        site.until(lambda: ok(site.admin.get(f"{V1}/nodes/worker1"))["interface"] == "eth1")
        chosen.focus()
        chosen.select_option("virbr0")
        expect(page.get_by_role("alert")).to_contain_text("192.168.122.1, as worker2 has")
        expect(chosen).to_have_value("eth1")
        expect(chosen).to_be_enabled()
    ok(site.admin.patch(f"{V1}/nodes/worker1", json={"interface": ""}))
    for name in ("worker1", "worker2"):
        site.report(name, 3)


def test_a_double_click_extends_a_session_once(site: Site) -> None:
    """As does one more click while the site has not answered the first."""
    site.submit("extended", kind="interactive", limit_s=7200)

    def ends_at() -> datetime | None:
        told = ok(site.admin.get(f"{V1}/sessions/extended", params={"project": "team-a"}))["expires_at"]
        return told and datetime.fromisoformat(told)

    site.until(ends_at)
    before = ends_at()
    with browser(site, WIDTHS[-1]) as window:
        page = window.page
        window.open("/login?next=/sessions/extended?project=team-a")
        sign_in(page, "admin", PASSWORD)
        extend = page.get_by_role("button", name="Extend")
        expect(extend).to_be_visible()
        slow = {"offline": False, "latency": 1500, "downloadThroughput": -1, "uploadThroughput": -1}
        page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", slow)
        extend.click(click_count=2, delay=100)
        page.wait_for_timeout(700)
        extend.click()
        site.until(lambda: ends_at() != before)
        page.wait_for_timeout(3500)
    assert before is not None
    assert ends_at() == before + timedelta(hours=1)
    site.admin.delete(f"{V1}/sessions/extended", params={"project": "team-a"}).raise_for_status()


AWAY = {"errors": [{"detail": "the API does not answer", "hint": "try again later, or tell the administrator"}]}
"""What the edge tells a program while the API is away."""


def test_a_page_says_that_the_site_does_not_answer_until_it_does(site: Site) -> None:
    """In the reader's language, which the edge does not know; what somebody sent meanwhile has to be sent again."""
    away = {"status": 502, "content_type": "application/problem+json", "json": AWAY}
    with new_page("127.0.0.1") as page:
        page.goto(f"{site.url}/login?next=/sessions")
        sign_in(page, "admin", PASSWORD)
        page.wait_for_url(f"{site.url}/sessions")
        alert = page.locator("#notice")
        page.route(
            "**/*", lambda route: route.fulfill(**away) if "hx-request" in route.request.headers else route.continue_()
        )
        expect(alert).to_have_text("The site does not answer. This page goes on as soon as it does.")
        page.get_by_role("button", name="Sign out").click()
        expect(alert).to_have_text("The site does not answer: try again in a moment")
        page.wait_for_timeout(4000)
        expect(alert).to_have_text("The site does not answer: try again in a moment")
        page.reload()
        expect(alert).to_have_text("The site does not answer. This page goes on as soon as it does.")
        page.unroute("**/*")
        expect(alert).to_be_hidden()
        busy = {"status": 503, "json": {"errors": [{"detail": "the database is busy", "hint": ""}]}}
        page.route("**/sessions", lambda route: route.fulfill(**busy))
        expect(alert).to_have_text("the database is busy")
        page.unroute("**/sessions")
        expect(alert).to_be_hidden(timeout=20_000)


@pytest.mark.parametrize("width", WIDTHS)
def test_an_administrator_sees_the_site_and_takes_a_node_out_of_service(site: Site, width: int) -> None:
    for number in range(3):
        site.submit(f"work-{width}-{number}", gpu_milli=1000 if number < 2 else 4000, preemptible=False)
    with browser(site, width) as window:
        page = window.page
        window.open("/")
        sign_in(page, "admin", PASSWORD)
        page.wait_for_url(f"{site.url}/")
        follow(page.get_by_role("link", name="Overview"))
        expect(page.get_by_role("article")).to_have_count(2)
        expect(page.get_by_text(f"work-{width}-2")).to_be_visible()
        window.show("overview")
        follow(page.get_by_role("link", name="Projects", exact=True))
        expect(page.get_by_role("link", name="team-a")).to_be_visible()
        window.show("projects")
        follow(page.get_by_role("link", name="team-a"))
        page.get_by_label("New members").fill("admin")
        page.get_by_role("button", name="Change").last.click()
        expect(page.locator("dd").filter(has_text="admin")).to_be_visible()
        window.show("project")
        follow(page.get_by_role("link", name="Accounting"))
        expect(page.locator(".plot canvas").first).to_be_visible()
        expect(page.locator(".plot canvas").last).to_be_visible()
        window.show("accounting")
        follow(page.get_by_role("link", name="Queue"))
        expect(page.get_by_text("What was decided last")).to_be_visible()
        window.show("queue")
        follow(page.get_by_role("link", name="Users"))
        page.get_by_label("Name", exact=True).fill(f"carl-{width}")
        page.get_by_label("First password").fill(PASSWORD)
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("row").filter(has_text=f"carl-{width}")).to_be_visible()
        expect(page.get_by_label("First password")).to_be_empty()
        window.show("users")
        follow(page.get_by_role("link", name="API keys"))
        page.get_by_label("Where it is used").fill(f"laptop-{width}")
        page.get_by_role("button", name="Make it").click()
        expect(page.locator("code.secret")).to_contain_text("psk_")
        expect(page.get_by_role("row").filter(has_text=f"laptop-{width}")).to_be_visible()
        window.show("keys")
        follow(page.get_by_role("link", name="Nodes", exact=True))
        page.on("dialog", lambda dialog: dialog.accept())
        row = page.get_by_role("row").filter(has_text="worker2")
        row.get_by_role("button", name="Maintenance").click()
        expect(row.get_by_role("button", name="Back into service")).to_be_visible()
        window.show("nodes")
        row.get_by_role("button", name="Back into service").click()
        expect(row.get_by_role("button", name="Drain")).to_be_visible()

        follow(page.get_by_role("link", name="Presets"))
        page.get_by_label("Name", exact=True).fill(f"small-{width}")
        page.get_by_label("CPU cores").fill("2")
        page.get_by_label("Memory (GiB)", exact=True).fill("1.5")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("row").filter(has_text=f"small-{width}")).to_contain_text("1.5 GiB")
        window.show("presets")
        follow(page.get_by_role("link", name=f"small-{width}"))
        page.get_by_label("Memory (GiB)", exact=True).fill("1.3")
        page.get_by_role("button", name="Change").click()
        expect(page.locator("#problem-memory_mib")).to_contain_text("write 1.2998046875")
        page.get_by_label("Memory (GiB)", exact=True).fill("2.5")
        window.show("preset")
        page.get_by_role("button", name="Change").click()
        expect(page.get_by_role("row").filter(has_text=f"small-{width}")).to_contain_text("2.5 GiB")
        follow(page.get_by_role("link", name="Groups", exact=True))
        page.get_by_label("Name", exact=True).fill(f"fast-{width}")
        page.get_by_label("Nodes", exact=True).fill("worker1, worker2")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"fast-{width}")
        page.wait_for_load_state()
        page.get_by_label("Nodes that go").fill("worker2")
        page.get_by_role("button", name="Change").nth(1).click()
        expect(page.locator("dd").filter(has_text="worker2")).to_have_count(0)
        window.show("group")
        page.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Resource groups")
        follow(page.get_by_role("link", name="Policies"))
        page.get_by_label("Name", exact=True).fill(f"few-{width}")
        page.get_by_label("GPUs", exact=True).fill("1.5")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("row").filter(has_text=f"few-{width}")).to_contain_text("1.5")
        window.show("policies")
        follow(page.get_by_role("link", name="Domains"))
        page.get_by_label("Name", exact=True).fill(f"acme-{width}")
        page.get_by_label("Policy of its people").select_option(f"few-{width}")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("row").filter(has_text=f"acme-{width}")).to_be_visible()
        window.show("domains")
        page.get_by_role("row").filter(has_text=f"acme-{width}").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("row").filter(has_text=f"acme-{width}")).to_have_count(0)
        follow(page.get_by_role("link", name="Sandboxes"))
        page.get_by_label("Name", exact=True).fill(f"strict-{width}")
        page.get_by_label("Denies, one rule a line").fill("mkdir(")
        page.get_by_role("button", name="Create").click()
        expect(page.locator("#problem-rules")).to_contain_text("'mkdir(' is no rule")
        page.get_by_label("Denies, one rule a line").fill("ptrace:kill\nsocket(0=16|17)")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("row").filter(has_text=f"strict-{width}")).to_contain_text("socket(0=16|17):EPERM")
        window.show("sandboxes")
        follow(page.get_by_role("link", name="Images", exact=True))
        expect(page.get_by_text("python:3.11", exact=True)).to_be_visible()
        window.show("images")
        site.back_up()
        follow(page.get_by_role("link", name="Backups", exact=True))
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_role("alert")).to_contain_text("waits already")
        page.wait_for_timeout(4000)
        expect(page.get_by_role("alert"), "a part that looks for news takes away no refusal").to_be_visible()
        for name in ("Health", "Repairs", "Backups"):
            follow(page.get_by_role("link", name=name, exact=True))
            expect(page.get_by_role("heading", level=1)).to_have_text(name)
            window.show(name.lower())
        page.get_by_role("button", name="Call back").click()
        expect(page.locator(".state.cancelled").first).to_be_visible()
        expect(page.get_by_role("button", name="Call back")).to_have_count(0)
        follow(page.get_by_role("link", name="Health", exact=True))
        follow(page.get_by_role("link", name="disk has room: /"))
        page.get_by_label("Comment").fill(f"I look, {width}")
        page.get_by_role("button", name="I know of it").last.click()
        expect(page.get_by_text(f": I look, {width}")).to_be_visible()
        window.show("check")
        follow(page.get_by_role("link", name="Audit", exact=True))
        follow(page.get_by_role("link", name="Files", exact=True))
        page.get_by_role("link", name="Verify the whole log").click()
        expect(page.get_by_role("status")).to_contain_text("as they were written")
        with page.expect_download() as loaded:
            page.locator("tbody a").first.click()
        assert loaded.value.suggested_filename.endswith(".log")
        window.show("audit-files")

        follow(page.get_by_role("link", name="Sessions", exact=True))
        page.get_by_role("searchbox").fill(f"work-{width}")
        expect(page.locator("tbody tr")).to_have_count(3)
        window.show("sessions")
        page.get_by_role("searchbox").press_sequentially("-2")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.get_by_role("searchbox")).to_be_focused()


@pytest.mark.parametrize("width", WIDTHS)
def test_an_administrator_drains_a_node_and_replaces_a_password_on_their_pages(site: Site, width: int) -> None:
    site.report("worker1", 9, eth0="10.0.0.1", eth1="10.1.0.1")
    site.submit(f"held-{width}", preemptible=False)
    with browser(site, width) as window:
        page = window.page
        page.on("dialog", lambda dialog: dialog.accept())
        window.open("/login?next=/nodes")
        sign_in(page, "admin", PASSWORD)
        page.wait_for_url(f"{site.url}/nodes")
        follow(page.get_by_role("link", name="ready", exact=True))
        window.show("nodes-ready")
        follow(page.get_by_role("link", name="worker1"))
        expect(page.get_by_text("tcp://127.0.0.1:6001")).to_be_visible()
        window.show("node")
        page.get_by_label("Minutes").fill("60")
        page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
        page.get_by_role("button", name="Drain").click()
        expect(page.locator("dl")).to_contain_text(re.compile("draining|maintenance"))
        page.get_by_role("button", name="Back into service").click()
        expect(page.get_by_role("button", name="Drain")).to_be_visible()
        page.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("alert")).to_contain_text("drain it first")

        window.open(f"/users/alice-{width}")
        page.get_by_role("button", name="Replace the password").click()
        expect(page.locator("code.secret")).to_have_text(re.compile(r"^\S{16}$"))
        window.show("user")
        page.get_by_role("button", name="Sign out everywhere").click()
        expect(page.get_by_role("heading", name="Logins: 0")).to_be_visible()
