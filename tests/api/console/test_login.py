"""The page on which a browser signs in, and where it lets it go on to; in a browser: tests/integration/test_apps.py."""

from __future__ import annotations

import re

import pytest

from api.console.login import destination
from common.app_addresses import AppAddresses
from tests.api.cluster import V1, Cluster, ok

HOST = "site.example:8443"
APPS = "https://site.example:9443"


@pytest.mark.parametrize(
    "wanted",
    [
        "/docs",
        "/docs?a=b&c=%2F#part",
        "https://site.example:8443/docs",
        "https://site.example:8443",
        "https://site.example:9443/web-8888/lab?token=a%20b",
    ],
)
def test_a_browser_goes_on_to_our_own_origins(wanted: str) -> None:
    assert destination(wanted, HOST, AppAddresses(APPS)) == wanted


def test_apps_are_found_by_every_name_of_the_site() -> None:
    for host, app in (("10.0.0.1:8443", "10.0.0.1:9443"), ("[fd00::1]:8443", "[fd00::1]:9443"), ("name", "name:9443")):
        assert destination(f"https://{app}/web-8888/", host, AppAddresses(APPS)) == f"https://{app}/web-8888/"
    assert (
        destination("https://name/web-8888/", "name:8443", AppAddresses("https://site.example"))
        == "https://name/web-8888/"
    )


@pytest.mark.parametrize(
    "wanted",
    [
        "",
        "docs",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example/",
        "/\t/evil.example/",
        "https://evil.example/",
        "https:evil.example",
        "https:/evil.example",
        "https:///evil.example",
        "https://site.example:8443@evil.example/",
        "https://site.example:8443.evil.example/",
        "https://evil.example\\@site.example:8443/",
        "https://evil.example#@site.example:8443/",
        "https://site.example:22/",
        "https://site.example:8443\\.evil.example/",
        "http://site.example:8443/docs",
        "HTTPS://site.example:8443/docs",
        "javascript:alert(1)",
        "data:text/html,x",
        " https://site.example:8443/docs",
        "/docs\nx",
        "/dócs",
        "/\ud800",
    ],
)
def test_nothing_leads_elsewhere(wanted: str) -> None:
    assert destination(wanted, HOST, AppAddresses(APPS)) == "/"


@pytest.mark.parametrize(
    "page", ["/login", "/login?next=%2Flogin", "/login/", "/l%6Fgin#a", "/./docs/../login", "/logout"]
)
def test_who_has_signed_in_is_not_led_to_sign_in_again_or_out(page: str) -> None:
    for place in ("", f"https://{HOST}"):
        assert destination(place + page, HOST, AppAddresses(APPS)) == "/"
    app = f"https://site.example:9443{page}"
    assert destination(app, HOST, AppAddresses(APPS)) == app, "an app may have a page of that name"
    assert destination("/login-7", HOST, AppAddresses(APPS)) == "/login-7"


def test_a_site_without_apps_has_one_origin() -> None:
    assert destination("https://site.example:9443/", HOST, AppAddresses()) == "/"
    assert destination(f"https://{HOST}/docs", HOST, AppAddresses()) == f"https://{HOST}/docs"


OWN = AppAddresses(APPS, "apps.example")
LABEL = f"8888-{'0f' * 16}"


def test_a_browser_goes_on_to_apps_with_names_of_their_own() -> None:
    wanted = f"https://{LABEL}.apps.example:9443/lab?a=b"
    assert destination(wanted, HOST, OWN) == wanted
    assert destination(wanted, HOST, AppAddresses(APPS)) == "/"


@pytest.mark.parametrize(
    "authority",
    [
        "apps.example:9443",
        "www.apps.example:9443",
        f"{LABEL}.apps.example",
        f"{LABEL}.apps.example:22",
        f"{LABEL}.apps.example:9443.evil.example",
        f"{LABEL}.apps.example.evil.example:9443",
        f"{LABEL}.evil-apps.example:9443",
        f"{LABEL}.apps_example:9443",
        f"a.{LABEL}.apps.example:9443",
        f"evil.example:9443@{LABEL}.apps.example:9443",
        f"{LABEL}.apps.example:9443@evil.example",
        f"{LABEL.upper()}.APPS.example:9443",
        f"0{LABEL}.apps.example:9443",
    ],
)
def test_no_other_name_is_that_of_an_app(authority: str) -> None:
    assert destination(f"https://{authority}/", HOST, OWN) == "/"


@pytest.mark.anyio
async def test_the_page_loads_nothing_from_outside_and_is_not_kept(cluster: Cluster) -> None:
    async with cluster.client() as guest:
        page = await guest.get("/login")
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert page.headers["cache-control"] == "no-store"
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert {address.partition("?")[0] for address in loaded} == {
            "data:,",
            "/static/console/console.css",
            "/static/console/login.js",
        }
        assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=", page.text), "nothing inline"
        for address in loaded[1:]:
            assert (await guest.get(address)).status_code == 200


@pytest.mark.anyio
async def test_what_the_page_writes_of_its_address_is_text(cluster: Cluster) -> None:
    wanted = f'{V1}/x?"><script>alert(1)</script>'
    async with cluster.client() as guest:
        page = await guest.get("/login", params={"next": wanted})
        assert "<script>alert" not in page.text
        assert 'data-destination="/api/v1/x?&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"' in page.text
        assert (await ok(guest.get("/health")))["status"] == "healthy"
