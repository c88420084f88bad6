"""Apps with names of their own from end to end: nginx, API, agent, two sessions, and a real browser."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import httpx
import pytest
from playwright.sync_api import Page, expect

from common.settings.edge import EdgeSettings
from tests.browser import ECHO, new_page, sign_in
from tests.integration.agent.conftest import (
    Authority,
    authority,  # noqa: F401
)
from tests.integration.edge import rendered
from tests.integration.test_apps import (
    PASSWORD,
    SESSION,
    V1,
    Site,
    image,  # noqa: F401
    ok,
    running_site,
    seen,
)
from tests.postgresql import new_database

NAME, CONSOLE = "apps.gpu.test", "console.gpu.test"
APP, STATE = "__Host-penstock_app", "__Host-penstock_state"
FETCH = "(async ([url, options]) => { try { return (await fetch(url, options)).type } catch { return 'refused' } })"
FRAME = """
url => new Promise(resolve => {
    const frame = document.createElement('iframe');
    frame.onload = () => resolve(frame.contentDocument === null ? 'of elsewhere' : 'of ours');
    frame.src = url;
    document.body.append(frame);
})
"""


LATER = "([url, at]) => { setTimeout(() => location.assign(url), at - Date.now()) }"


class Named:
    """A site with names for apps, where alice's sessions `web` and `other` run; `urls` are by session and port."""

    def __init__(self, site: Site, urls: dict[str, str]) -> None:
        self.site = site
        self.urls = urls

    @property
    def console(self) -> str:
        return f"https://{CONSOLE}:{self.site.edge.console}"

    def get(self, url: str, **headers: str) -> httpx.Response:
        """Ask for an address of a name, as somebody whose name server knows it."""
        place = urlsplit(url)
        with httpx.Client(verify=self.site.trust, timeout=30) as client:
            return client.get(
                f"https://127.0.0.1:{place.port}{place.path or '/'}?{place.query}",
                headers={"Host": place.netloc, **headers},
            )


@pytest.fixture(scope="module")
def named(
    authority: Authority,  # noqa: F811
    image: str,  # noqa: F811
    engine: docker.DockerClient,
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Named]:
    folder, said = tmp_path_factory.mktemp("named"), EdgeSettings(names=[CONSOLE], apps_name=NAME)
    with running_site(authority, image, engine, new_database(postgresql_server), folder, said) as site:
        urls: dict[str, str] = {}
        with site.signed_in("alice") as alice:
            key = ok(alice.post(f"{V1}/api-keys", json={"name": "curl"}))["key"]
            for name in ("web", "other"):
                made = ok(alice.post(f"{V1}/sessions", json={**SESSION, "name": name, "args": []}))
                urls |= {f"{name}-{each['port']}": each["url"] for each in made["services"]}
        running = Named(site, urls)
        authorized = {"Authorization": f"Bearer {key}"}
        site.until(lambda: all(running.get(url, **authorized).status_code in (200, 426) for url in urls.values()))
        yield running


@pytest.fixture
def page() -> Iterator[Page]:
    with new_page("127.0.0.1", "*.gpu.test") as fresh:
        yield fresh


def shown(page: Page) -> dict[str, Any]:
    """Return what the app saw that the page is of."""
    told: dict[str, Any] = json.loads(page.inner_text("body"))
    return {**told, "headers": {name.lower(): text for name, text in told["headers"].items()}}


def cookies(page: Page) -> dict[tuple[str, str], str]:
    return {(each["name"], each["domain"]): each["value"] for each in page.context.cookies()}


def log_in(named: Named, page: Page, url: str) -> None:
    page.goto(url)
    assert page.url.startswith(f"{named.console}/login?next=")
    sign_in(page, "alice", PASSWORD)
    page.wait_for_url(url)


def test_with_a_certificate_of_the_company_the_names_of_apps_show_that_one() -> None:
    files = {"certificate_file": "/root/c.pem", "key_file": "/root/k.pem"}
    for given, shown_one in (({}, 0), (files, 1)):
        said = EdgeSettings.model_validate({"names": [CONSOLE], "apps_name": NAME, **given})
        known = {"edge_console_suffix": "", "edge_settings": said.model_dump(), "edge_company_files": "/company"}
        text = rendered("edge", "etc/penstock/edge.conf", **known)
        [server] = [
            part for part in text.split("    server {")[1:] if r"server_name ~^[a-z0-9-]+\.apps\.gpu\.test$;" in part
        ]
        assert server.count("ssl_certificate /company.crt;") == shown_one


def test_each_app_has_a_name_of_its_own(named: Named) -> None:
    assert len({urlsplit(url).netloc for url in named.urls.values()}) == 4
    for url in named.urls.values():
        place = urlsplit(url)
        assert (place.port, place.path) == (named.site.edge.apps, "/")
        assert str(place.hostname).endswith(f".{NAME}")


def test_a_browser_comes_to_an_app_by_the_console_and_the_ticket_stays_nowhere(named: Named, page: Page) -> None:
    url = named.urls["web-8888"]
    passed: list[str] = []
    page.on("request", lambda request: passed.append(request.url))
    log_in(named, page, f"{url}lab?a=b&c")
    seen_there = shown(page)
    assert (seen_there["path"], seen_there["headers"]["x-forwarded-user"]) == ("/lab?a=b&c", "alice")
    assert "penstock" not in seen_there["headers"].get("cookie", "")
    assert "referer" not in seen_there["headers"]
    host, console = str(urlsplit(url).hostname), CONSOLE
    assert {where for name, where in cookies(page) if name in (APP, STATE)} == {host}
    assert {where for name, where in cookies(page) if name == "__Host-penstock_session"} == {console}
    [entrance] = [each for each in passed if "/-/enter" in each]
    assert entrance.startswith(f"{url}-/enter?ticket=")
    ticket = entrance.partition("ticket=")[2].partition("&")[0]
    folder = named.site.log.parent
    logs = [path.read_text(errors="replace") for path in folder.rglob("*.log")]
    assert any("/-/enter" in text for text in logs), "the way itself is written down"
    assert not [text for text in logs if ticket in text]
    again = page.goto(entrance)
    assert again is not None
    assert again.status == 403
    page.goto(named.urls["other-8888"])
    assert shown(page)["headers"]["x-forwarded-user"] == "alice", "one login is enough"


def test_the_page_of_an_app_reaches_no_other_one(named: Named, page: Page) -> None:
    web, other = named.urls["web-8888"], named.urls["other-8888"]
    log_in(named, page, other)
    page.goto(named.urls["other-9000"])
    page.goto(web)
    assert page.evaluate(f"({FETCH})({json.dumps([web + 'x', {}])})") == "basic", "its own"
    for options in ({}, {"credentials": "include"}, {"method": "POST", "credentials": "include", "body": "x"}):
        assert page.evaluate(f"({FETCH})({json.dumps([other, options])})") == "refused", options
    blind = {"mode": "no-cors", "credentials": "include"}
    with page.expect_response(f"{other}blind") as told:
        page.evaluate(f"({FETCH})({json.dumps([other + 'blind', blind])})")
    assert told.value.status == 403, "it does nothing there, though nobody could read what comes back"
    with page.expect_response(f"{other}framed") as told:
        assert page.evaluate(FRAME, f"{other}framed") == "of elsewhere"
    assert told.value.status == 403
    sockets = named.urls["other-9000"].replace("https", "wss", 1)
    with pytest.raises(Exception, match="refused"):
        page.evaluate(f"({ECHO})({json.dumps(sockets)}, 'hello')")
    console = f"{named.console}{V1}/auth/me"
    assert page.evaluate(f"({FETCH})({json.dumps([console, {'credentials': 'include'}])})") == "refused"


def test_an_app_sets_cookies_for_itself_alone(named: Named, page: Page) -> None:
    web, other = named.urls["web-8888"], named.urls["other-8888"]
    log_in(named, page, other)
    page.goto(f"{web}plant={NAME}")
    page.goto(f"{web}plant=gpu.test")
    page.goto(web)
    assert "planted=1" in shown(page)["headers"]["cookie"]
    page.goto(other)
    assert shown(page)["headers"]["cookie"] == "app=1"
    assert {where.lstrip(".") for name, where in cookies(page) if name == "planted"} == {str(urlsplit(web).hostname)}


def test_a_websocket_echoes_to_its_own_pages(named: Named, page: Page) -> None:
    url = named.urls["web-9000"]
    log_in(named, page, url)
    kernels = url.replace("https", "wss", 1) + "kernels"
    assert page.evaluate(f"({ECHO})({json.dumps(kernels)}, 'hello')") == "hello"


def test_a_program_comes_with_its_key(named: Named) -> None:
    with named.site.signed_in("alice") as browser:
        key = ok(browser.post(f"{V1}/api-keys", json={"name": "more"}))["key"]
    answer = named.get(f"{named.urls['web-8888']}x?y", Authorization=f"Bearer {key}")
    assert (seen(answer)["path"], seen(answer)["headers"].get("authorization")) == ("/x?y", None)
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers.get_list("Origin-Agent-Cluster") == ["?1"]


def test_where_nothing_is_nothing_is_found(named: Named) -> None:
    port = named.site.edge.apps
    with named.site.signed_in("admin") as admin:
        key = ok(admin.post(f"{V1}/api-keys", json={"name": "curl"}))["key"]
    for label in ("www", f"8888-{'0' * 32}"):
        answer = named.get(f"https://{label}.{NAME}:{port}/", Authorization=f"Bearer {key}")
        assert answer.status_code == 404, label
    for server in (named.site.edge.console, named.site.edge.api, port):
        answer = named.get(f"https://{CONSOLE}:{server}{V1}/apps/enter?ticket=x", Authorization=f"Bearer {key}")
        assert answer.status_code == 404, "tickets are taken at apps alone"


def test_the_former_address_leads_to_the_name(named: Named, page: Page) -> None:
    page.goto(f"{named.console}/login")
    sign_in(page, "alice", PASSWORD)
    page.wait_for_url(f"{named.console}/")
    page.goto(f"https://{CONSOLE}:{named.site.edge.apps}/web-8888/lab?a=b")
    expect(page).to_have_url(f"{named.urls['web-8888']}lab?a=b")
    assert shown(page)["path"] == "/lab?a=b"


def test_what_ends_at_the_console_ends_at_the_apps(named: Named, page: Page) -> None:
    url = named.urls["web-8888"]
    log_in(named, page, url)
    ok(named.site.admin.delete(f"{V1}/users/alice/logins"))
    page.goto(url)
    assert page.url.startswith(f"{named.console}/login?next=")


def test_pages_that_a_browser_opens_at_once_all_come_in(named: Named, page: Page) -> None:
    url = named.urls["web-8888"]
    page.goto(f"{named.console}/login")
    sign_in(page, "alice", PASSWORD)
    page.wait_for_url(f"{named.console}/")
    tabs = [page.context.new_page() for _ in range(4)]
    at = time.time() * 1000 + 2000
    for number, tab in enumerate(tabs):
        tab.evaluate(LATER, [f"{url}{number}", at])
    for number, tab in enumerate(tabs):
        tab.wait_for_url(f"{url}{number}")
        assert shown(tab)["path"] == f"/{number}"
