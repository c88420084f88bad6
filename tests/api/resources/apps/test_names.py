"""Apps with names of their own: what the edge is told there, and how a browser gets in, with a ticket and only once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import httpx
import pytest
from sqlalchemy import func, select, update

from api.clock import now
from api.database import Database
from api.endpoints.app import create_app
from api.resources.apps.entrance import TICKET_S
from api.tables.logins import AppLogin
from api.tables.sessions import Container, Service
from tests.api.cluster import V1, Cluster, ok, running_cluster, sign_in
from tests.api.console.conftest import PAGE

pytestmark = pytest.mark.anyio

NAME = "apps.example"
APPS = {"apps_url": "https://site.example:9443", "apps_name": NAME}
SHARED = "All apps of this site share one origin"
APP, STATE = "__Host-penstock_app", "__Host-penstock_state"


@pytest.fixture
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    """A cluster of a site with names for apps, where alice's sessions `web` and `other` run, each with port 8888."""
    async with running_cluster(database_url, **APPS) as running:
        await running.add_node()
        await running.add_image()
        async with await running.user("alice"), await running.user("bob"):
            await running.add_project("team-a", 2000, "alice", "bob")
        async with signed_in(running, "alice") as alice:
            for name in ("web", "other"):
                body = {"name": name, "project": "team-a", "image": "python", "gpu_milli": 500, "ports": [8888]}
                await ok(alice.post(f"{V1}/sessions", json=body))
        await running.settle()
        async with running.database.transaction() as db:
            await db.execute(update(Container).values(ports={"8888": 57123}))
        yield running


@asynccontextmanager
async def signed_in(cluster: Cluster, name: str) -> AsyncIterator[httpx.AsyncClient]:
    """Give a browser at the console."""
    async with cluster.client(**PAGE) as browser:
        await sign_in(browser, name)
        yield browser


async def host_of(cluster: Cluster, session: str = "web") -> str:
    return f"8888-{UUID((await cluster.session(session))['id']).hex}.{NAME}:9443"


class Browser:
    """A browser at an app, with the cookies that it has there: none of them is the console's."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self.host = host
        self.console = self._client = cluster.client()
        self.cookies: dict[str, str] = {}

    async def ask(self, uri: str = "/", **headers: str) -> httpx.Response:
        """Ask as the edge does."""
        return await self._get(f"{V1}/apps/authorize", **{"X-Original-URI": uri, **headers})

    async def leave(self, uri: str = "/") -> str:
        """Return where in the console the edge sends it."""
        answer = await self.ask(uri)
        assert answer.status_code == 401
        self._take(answer.headers["X-Cookie"])
        return answer.headers["X-Location"]

    async def enter(self, location: str) -> httpx.Response:
        """Follow the way back from the console, as the edge passes it on."""
        place = urlsplit(location)
        assert (f"https://{place.netloc}", place.path) == (f"https://{self.host}", "/-/enter")
        answer = await self._get(f"{V1}/apps/enter?{place.query}")
        for cookie in answer.headers.get_list("set-cookie"):
            self._take(cookie)
        return answer

    def _take(self, cookie: str) -> None:
        assert cookie.endswith("; Path=/; Secure; HttpOnly; SameSite=Lax")
        name, _, value = cookie.partition(";")[0].partition("=")
        self.cookies[name] = value

    async def _get(self, address: str, **headers: str) -> httpx.Response:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return await self._client.get(address, headers={"Host": self.host, "Cookie": cookie, **headers})


@asynccontextmanager
async def opened(cluster: Cluster, user: str = "alice", session: str = "web") -> AsyncIterator[Browser]:
    """Give a browser of a user who has opened an app, and stays signed in at the console."""
    browser = Browser(cluster, await host_of(cluster, session))
    async with signed_in(cluster, user) as console:
        answer = await console.get(await browser.leave("/lab?a=b&c"))
        assert answer.status_code == 303, answer.text
        entered = await browser.enter(answer.headers["location"])
        assert (entered.status_code, entered.headers["location"]) == (303, "/lab?a=b&c")
        browser.console = console
        yield browser


def meant(answer: httpx.Response) -> int:
    """Return the status that the edge shows."""
    return int(answer.headers["X-Status"]) if answer.status_code == 403 else answer.status_code


async def tickets(cluster: Cluster) -> int:
    async with cluster.database.reading() as db:
        return int(await db.scalar(select(func.count()).select_from(AppLogin)) or 0)


async def test_an_app_has_the_whole_path_and_none_of_our_cookies(cluster: Cluster) -> None:
    async with opened(cluster) as browser:
        answer = await browser.ask("/web-8888/x?y", Cookie=f"{APP}={browser.cookies[APP]}; {STATE}=1; own=2")
    assert answer.status_code == 200
    told = {name.removeprefix("x-upstream-"): text for name, text in answer.headers.items()}
    assert (told["uri"], told["prefix"], told["cookie-path"]) == ("/web-8888/x?y", "", "")
    assert (told["cookie"], told["user"]) == ("own=2", "alice")
    assert told["caller"].startswith("logins:"), "it ends with the login at the console"
    assert "referrer-policy" not in answer.headers


async def test_what_people_are_told_is_the_app_s_own_address(cluster: Cluster) -> None:
    web = await cluster.session("web")
    assert web["urls"] == [f"https://{await host_of(cluster)}/"]
    async with signed_in(cluster, "alice") as console:
        page = await console.get("/sessions/web", params={"project": "team-a"})
    assert f'href="https://{await host_of(cluster)}/"' in page.text
    assert SHARED not in page.text
    assert f"form-action 'self' https://*.{NAME}:9443;" in page.headers["content-security-policy"]


async def test_where_all_share_one_origin_people_are_told_what_that_means(cluster: Cluster) -> None:
    cluster.app.state.settings = cluster.settings.model_copy(update={"apps_name": ""})
    async with signed_in(cluster, "alice") as console:
        page = await console.get("/sessions/web", params={"project": "team-a"})
    assert 'href="https://site.example:9443/web-8888/"' in page.text
    assert SHARED in page.text
    assert "form-action 'self' https://site.example:9443;" in page.headers["content-security-policy"]


async def test_a_program_comes_with_its_key(cluster: Cluster) -> None:
    answer = await Browser(cluster, await host_of(cluster)).ask(Authorization=cluster.admin.headers["authorization"])
    assert answer.status_code == 200


async def test_the_login_at_the_console_opens_nothing_by_itself(cluster: Cluster) -> None:
    browser = Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "alice") as console:
        secret = console.cookies["__Host-penstock_session"]
    for cookie in (f"__Host-penstock_session={secret}", f"{APP}={secret}"):
        assert (await browser.ask(Cookie=cookie)).status_code == 401


async def test_a_login_at_one_app_opens_no_other_one_and_nothing_of_the_console(cluster: Cluster) -> None:
    async with opened(cluster) as browser:
        cookie = f"{APP}={browser.cookies[APP]}"
        other = Browser(cluster, await host_of(cluster, "other"))
        assert (await other.ask(Cookie=cookie)).status_code == 401
        other.host = browser.host.replace("8888-", "8889-")
        assert (await other.ask(Cookie=cookie)).status_code == 401
        async with cluster.client() as guest:
            for name in (APP, "__Host-penstock_session"):
                headers = {"Cookie": f"{name}={browser.cookies[APP]}"}
                assert (await guest.get(f"{V1}/auth/me", headers=headers)).status_code == 401
                shared = {**headers, "Host": "site.example:9443", "X-Original-URI": "/web-8888/"}
                assert (await guest.get(f"{V1}/apps/authorize", headers=shared)).status_code == 401
        assert (await browser.ask()).status_code == 200


async def test_a_ticket_counts_once(cluster: Cluster) -> None:
    browser = Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "alice") as console:
        location = (await console.get(await browser.leave())).headers["location"]
    assert (await browser.enter(location)).status_code == 303
    again = await browser.enter(location)
    assert (again.status_code, again.headers["content-type"]) == (403, "text/plain; charset=utf-8")
    assert "set-cookie" not in again.headers
    assert (await browser.ask()).status_code == 200, "the login that it made goes on"


async def test_a_ticket_counts_once_for_all_processes(cluster: Cluster, database_url: str) -> None:
    browser = Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "alice") as console:
        location = (await console.get(await browser.leave())).headers["location"]
    database = Database(database_url)
    app = create_app(cluster.settings, database, cluster.engine, reconcile=False)
    elsewhere = Browser(replace(cluster, app=app), browser.host)
    elsewhere.cookies = dict(browser.cookies)
    assert (await elsewhere.enter(location)).status_code == 303, "no process keeps it to itself"
    assert (await elsewhere.ask()).status_code == 200
    assert (await browser.enter(location)).status_code == 403
    browser.cookies = elsewhere.cookies
    assert (await browser.ask()).status_code == 200
    await database.close()


async def test_a_ticket_ends_soon(cluster: Cluster) -> None:
    browser = Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "alice") as console:
        location = (await console.get(await browser.leave())).headers["location"]
        async with cluster.database.transaction() as db:
            at = (await db.execute(select(AppLogin.expires_at))).scalar_one()
            assert at is not None
            assert at <= now() + timedelta(seconds=TICKET_S)
            await db.execute(update(AppLogin).values(expires_at=now() - timedelta(seconds=1)))
        assert (await browser.enter(location)).status_code == 403
        assert await tickets(cluster) == 1
        await console.get(await browser.leave())
        assert await tickets(cluster) == 1, "what has ended is forgotten"


async def test_a_ticket_is_for_one_app(cluster: Cluster) -> None:
    browser, other = Browser(cluster, await host_of(cluster)), Browser(cluster, await host_of(cluster, "other"))
    async with signed_in(cluster, "alice") as console:
        location = (await console.get(await browser.leave())).headers["location"]
    other.cookies = dict(browser.cookies)
    assert (await other.enter(location.replace(browser.host, other.host))).status_code == 403
    assert (await browser.enter(location)).status_code == 303, "nobody else has used it up"


async def test_a_ticket_is_for_the_browser_that_was_sent_for_it(cluster: Cluster) -> None:
    """Nobody lets somebody else into an app as himself by a link."""
    browser, victim = Browser(cluster, await host_of(cluster)), Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "alice") as console:
        location = (await console.get(await browser.leave())).headers["location"]
    assert (await victim.enter(location)).status_code == 403
    await victim.leave()
    led = await victim.enter(location)
    assert (led.status_code, led.headers["location"]) == (303, "/"), "he comes in as himself, or not at all"
    assert "set-cookie" not in led.headers
    assert (await victim.ask()).status_code == 401
    assert (await browser.enter(location)).status_code == 303, "nobody else has used it up"


async def test_pages_that_a_browser_opens_anew_at_once_all_come_in(cluster: Cluster) -> None:
    """Each was sent away before the browser had a state: it keeps the one that came last."""
    browser = Browser(cluster, await host_of(cluster))
    ways = []
    for place in ("/a", "/b", "/c"):
        browser.cookies.clear()
        ways.append(await browser.leave(place))
    async with signed_in(cluster, "alice") as console:
        answers = [await browser.enter((await console.get(way)).headers["location"]) for way in ways]
        assert [answer.headers["location"] for answer in answers] == ["/a", "/b", "/c"]
        assert [APP in answer.headers.get("set-cookie", "") for answer in answers] == [False, False, True]
        assert (await browser.ask("/a")).status_code == 200
        del browser.cookies[APP]
        again = await browser.enter((await console.get(await browser.leave("/a"))).headers["location"])
    assert (again.headers["location"], (await browser.ask()).status_code) == ("/a", 200)


async def test_what_a_page_has_asked_is_answered_when_another_one_comes_in(cluster: Cluster) -> None:
    """The browser takes a new cookie for all of them; requests on their way have the one before."""
    browser = Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "alice") as console:
        locations = [(await console.get(await browser.leave())).headers["location"] for _ in range(2)]
        await browser.enter(locations[0])
        before = dict(browser.cookies)
        await browser.enter(locations[1])
        after, browser.cookies = browser.cookies, before
        assert (await browser.ask()).status_code == 200
        async with cluster.database.transaction() as db:
            ending = AppLogin.expires_at.is_not(None)
            until = (await db.execute(select(AppLogin.expires_at).where(ending))).scalar_one()
            assert until is not None
            assert until <= now() + timedelta(seconds=TICKET_S)
            await db.execute(update(AppLogin).where(ending).values(expires_at=now() - timedelta(seconds=1)))
        assert (await browser.ask()).status_code == 401, "soon nobody has it any more"
        browser.cookies = after
        assert (await browser.ask()).status_code == 200
        browser.cookies.pop(APP)
        await console.get(await browser.leave())
        assert await tickets(cluster) == 2, "the login, and a new ticket"


async def test_two_pages_may_be_on_their_way_at_once(cluster: Cluster) -> None:
    browser = Browser(cluster, await host_of(cluster))
    ways = [await browser.leave(place) for place in ("/a", "/b")]
    async with signed_in(cluster, "alice") as console:
        locations = [(await console.get(way)).headers["location"] for way in ways]
    answers = [await browser.enter(location) for location in locations]
    assert [answer.headers["location"] for answer in answers] == ["/a", "/b"]
    assert (await browser.ask()).status_code == 200
    async with cluster.database.reading() as db:
        lasting = select(func.count()).select_from(AppLogin).where(AppLogin.expires_at.is_(None))
        assert await db.scalar(lasting) == 1, "one cookie, one login"


async def test_who_may_not_open_an_app_gets_no_ticket(cluster: Cluster) -> None:
    browser = Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "bob") as console:
        answer = await console.get(await browser.leave())
    assert answer.status_code == 404
    assert await tickets(cluster) == 0
    async with opened(cluster, "admin") as browser:
        assert (await browser.ask()).headers["X-Upstream-User"] == "admin"


async def test_who_is_not_signed_in_signs_in_first_and_comes_back(cluster: Cluster) -> None:
    browser = Browser(cluster, await host_of(cluster))
    wanted = await browser.leave("/lab?a=b&c")
    async with cluster.client(**PAGE) as guest:
        answer = await guest.get(wanted)
        assert answer.status_code == 303
        login = urlsplit(answer.headers["location"])
        assert (login.netloc, login.path, parse_qs(login.query)["next"]) == ("", "/login", [wanted])


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/",
        "https://apps.example:9443/",
        "https://{host}@evil.example/",
        "https://evil.example#{host}/",
        "https://{host}.evil.example/",
        "https://{host}\\@evil.example/",
        "https://{host}//evil.example/",
        "https://{host}/\\evil.example/",
        "https://{host}/a\r\nSet-Cookie: a=1",
        "http://{host}/",
        "https://{name}/",
        "https://{name}:443/",
        "https://{name}:9443:443/",
        "//{host}/",
        "/",
        "",
    ],
)
async def test_no_ticket_goes_elsewhere(cluster: Cluster, wanted: str) -> None:
    host = await host_of(cluster)
    async with signed_in(cluster, "alice") as console:
        asked = {"state": "0" * 32, "next": wanted.format(host=host, name=host.removesuffix(":9443"))}
        answer = await console.get("/apps/open", params=asked)
    assert (answer.status_code, "location" in answer.headers) == (404, False)
    assert await tickets(cluster) == 0


@pytest.mark.parametrize("uri", ["//a", "/?q=a\\b", "/\\a"])
async def test_from_a_place_that_browsers_read_as_they_like_the_way_leads_to_the_start(
    cluster: Cluster, uri: str
) -> None:
    browser = Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "alice") as console:
        answer = await console.get(await browser.leave(uri))
        assert answer.status_code == 303, answer.text
        entered = await browser.enter(answer.headers["location"])
    assert (entered.status_code, entered.headers["location"]) == (303, "/")


@pytest.mark.parametrize("to", ["//evil.example/", "/\\evil.example", "https://evil.example/", "", "/a\nb", "/ b"])
async def test_nothing_leads_from_an_app_elsewhere(cluster: Cluster, to: str) -> None:
    browser = Browser(cluster, await host_of(cluster))
    async with signed_in(cluster, "alice") as console:
        location = (await console.get(await browser.leave())).headers["location"]
    place = httpx.URL(location).copy_set_param("to", to)
    answer = await browser.enter(str(place))
    assert (answer.status_code, "location" in answer.headers) == (422, False)


async def test_a_key_is_no_way_to_a_ticket(cluster: Cluster) -> None:
    browser = Browser(cluster, await host_of(cluster))
    answer = await cluster.admin.get(await browser.leave())
    assert answer.status_code == 409
    assert answer.json()["detail"].startswith("an API key needs no ticket.")


async def test_a_login_at_an_app_ends_with_what_it_came_from(cluster: Cluster) -> None:
    for lose in ("logout", "logins", "disabled", "member"):
        async with opened(cluster) as browser:
            assert (await browser.ask()).status_code == 200
            await _lose(cluster, browser.console, lose)
            assert meant(await browser.ask()) == (404 if lose == "member" else 401), lose
        await ok(cluster.admin.patch(f"{V1}/users/alice", json={"disabled": False}))
        await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice", "bob"]}))


async def _lose(cluster: Cluster, console: httpx.AsyncClient, what: str) -> None:
    if what == "logout":
        await ok(console.post(f"{V1}/auth/logout"))
    elif what == "logins":
        await ok(cluster.admin.delete(f"{V1}/users/alice/logins"))
    elif what == "disabled":
        await ok(cluster.admin.patch(f"{V1}/users/alice", json={"disabled": True}))
    else:
        await ok(cluster.admin.patch(f"{V1}/projects/team-a", json={"members": ["bob"]}))


async def test_pages_of_other_apps_load_nothing_of_it(cluster: Cluster) -> None:
    async with opened(cluster) as browser:
        asked = {"same-origin": 200, "none": 200, "same-site": 403, "cross-site": 403}
        for site, status in asked.items():
            told = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
            assert meant(await browser.ask(**told)) == status, site
        framed = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        assert meant(await browser.ask(**framed)) == 403
        assert meant(await browser.ask(**{**framed, "Sec-Fetch-Dest": "document"})) == 200
        other = await host_of(cluster, "other")
        for origin in (f"https://{other}", "https://site.example", f"https://{NAME}:9443", "null"):
            assert meant(await browser.ask(Origin=origin)) == 403, origin
        socket = {"Origin": f"https://{browser.host}", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"}
        assert meant(await browser.ask(**socket)) == 200


async def test_the_origin_of_all_apps_has_none(cluster: Cluster) -> None:
    headers = {"Host": "site.example:9443", "X-Original-URI": "/web-8888/lab?a=b"}
    answer = await cluster.admin.get(f"{V1}/apps/authorize", headers=headers)
    assert (meant(answer), answer.headers["X-Location"]) == (302, f"https://{await host_of(cluster)}/lab?a=b")
    assert "X-Upstream" not in answer.headers
    async with signed_in(cluster, "bob") as bob:
        assert meant(await bob.get(f"{V1}/apps/authorize", headers=headers)) == 404, "it tells nobody else the name"


@pytest.mark.parametrize("label", ["8888-" + "0" * 32, "8889-{id}", "8888-{short}", "www", "{id}", "08888-{id}"])
async def test_unknown_names_lead_nowhere(cluster: Cluster, label: str) -> None:
    id_ = UUID((await cluster.session("web"))["id"]).hex
    host = f"{label.format(id=id_, short=id_[:31])}.{NAME}:9443"
    headers = {"Host": host, "X-Original-URI": "/"}
    assert meant(await cluster.admin.get(f"{V1}/apps/authorize", headers=headers)) == 404


async def test_a_name_is_never_another_session_s(cluster: Cluster) -> None:
    """What a browser keeps of an app, such as a worker of its pages, meets no session that comes after."""
    before = await host_of(cluster)
    await ok(cluster.admin.delete(f"{V1}/sessions/web", params={"project": "team-a"}))
    await cluster.settle()
    await cluster.submit("web", ports=[8888])
    await cluster.settle()
    assert await host_of(cluster) != before
    headers = {"Host": before, "X-Original-URI": "/"}
    assert meant(await cluster.admin.get(f"{V1}/apps/authorize", headers=headers)) == 404
    async with cluster.database.reading() as db:
        paths = (await db.scalars(select(Service.path))).all()
    assert "web-8888" in paths, "as where all share one origin"


async def test_apps_are_told_that_they_are_at_the_root(cluster: Cluster) -> None:
    spec = next(spec for spec in cluster.engine.specs.values() if spec.session_name == "web")
    assert (spec.environment["PENSTOCK_APP_PATH"], spec.environment["PENSTOCK_APP_PATH_8888"]) == ("/", "/")


async def test_no_worker_of_an_app_sees_the_tickets_for_it(cluster: Cluster) -> None:
    worker = {"Service-Worker": "script", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "serviceworker"}
    async with opened(cluster) as browser:
        for uri in ("/sw.js", "/sw.js?a=/b/c", "/-/sw.js"):
            refused = await browser.ask(uri, **worker)
            assert (meant(refused), "may not see the way into its app" in refused.headers["X-Reason"]) == (403, True), (
                uri
            )
            assert meant(await browser.ask(uri)) == 200, "as a file it is there"
        assert meant(await browser.ask("/static/sw.js", **worker)) == 200
