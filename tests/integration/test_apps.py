"""Apps of sessions from end to end: nginx with the role's configuration, a real API, a real agent, a real container."""

from __future__ import annotations

import io
import json
import ssl
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import docker
import httpx
import pytest
import websockets
from playwright.sync_api import Page, expect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
from websockets.typing import Origin

from common.protocol import MAX_FRAME
from common.settings.edge import EdgeSettings
from tests import forks
from tests.api_process import api_environment
from tests.browser import ECHO, new_page, sign_in
from tests.integration import web_app
from tests.integration.agent.conftest import (
    Agent,
    Authority,
    authority,  # noqa: F401
    make_agent,
)
from tests.integration.edge import Edge, running_edge
from tests.integration.own_engine import remove_containers
from tests.postgresql import new_database
from tests.websocket import WebSocket, connect

PASSWORD = "Correct1horse!"
V1 = "/api/v1"
PYTHON = Path("/usr/bin/python3").resolve()
SESSION = {
    "name": "web",
    "project": "team-a",
    "image": "web",
    "kind": "interactive",
    "gpu_milli": 500,
    "ports": [8888, 9000],
    "command": [str(PYTHON), "/srv/web_app.py"],
    "args": ["--NotebookApp.base_url=team-a-web"],
}


class Site:
    """An API behind an edge, with the agent of one node, and a running session `web` of alice."""

    def __init__(self, authority: Authority, edge: Edge, environment: dict[str, str], log: Path) -> None:  # noqa: F811
        self.edge = edge
        self.environment = environment
        self.log = log
        self.trust = ssl.create_default_context(cafile=str(authority.ca))
        # the WebSockets of these tests have threads: see the context of an agent's tests
        self.trust.maximum_version = ssl.TLSVersion.TLSv1_2
        self.admin = self.client()

    def client(self, **headers: str) -> httpx.Client:
        """Return a client of the API behind the edge."""
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.edge.api}", verify=self.trust, timeout=30, headers=headers
        )

    def sign_in(self, name: str) -> httpx.Client:
        """Return a browser that has signed in at the console."""
        browser = httpx.Client(base_url=f"https://127.0.0.1:{self.edge.console}", verify=self.trust, timeout=30)
        login = browser.post(f"{V1}/auth/login", json={"name": name, "password": PASSWORD}).raise_for_status().json()
        browser.headers["X-CSRF-Token"] = login["csrf_token"]
        return browser

    @contextmanager
    def signed_in(self, name: str) -> Iterator[httpx.Client]:
        """Give a browser that has signed in, for a while."""
        browser = self.sign_in(name)
        yield browser
        browser.close()

    @property
    def apps(self) -> str:
        return f"https://127.0.0.1:{self.edge.apps}"

    def run(self, *words: str, stdin: str = "") -> None:
        forks.run([sys.executable, "-m", "api", *words], self.environment, stdin, check=True)

    def until(self, condition: Callable[[], Any], timeout_s: float = 60) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            assert time.monotonic() < deadline, self.log.read_text()[-5000:]
            time.sleep(0.1)
        return value


def ok(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def image(engine: docker.DockerClient) -> Iterator[str]:
    """An image with this machine's Python and the program of the tests."""
    reference = f"penstock-test/web:{uuid.uuid4().hex[:12]}"
    repository, tag = reference.split(":")
    buffer = io.BytesIO()
    modules = Path(f"/usr/lib/{PYTHON.name}")
    programs = [PYTHON, *modules.glob("lib-dynload/*.so")]
    libraries = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    needed = {Path(word) for word in libraries.split() if word.startswith("/") and not word.endswith(":")}
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in (PYTHON, *needed):
            archive.add(path.resolve(), str(path))
        archive.add(modules, str(modules), filter=_slim)
        archive.add(Path(websockets.__file__).parent, "srv/websockets", filter=_slim)
        archive.add(web_app.__file__, "srv/web_app.py")
    engine.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)
    yield reference
    engine.images.remove(reference, force=True)


def _slim(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    needless = {"__pycache__", "test", "tests", "ensurepip", "idlelib", "lib2to3"}
    return None if needless & set(Path(member.name).parts) else member


@pytest.fixture(scope="module")
def site(
    authority: Authority,  # noqa: F811
    image: str,
    engine: docker.DockerClient,
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with running_site(authority, image, engine, new_database(postgresql_server), folder) as running:
        with running.signed_in("alice") as alice:
            ok(alice.post(f"{V1}/sessions", json=SESSION))

            def serves() -> bool:
                return all(alice.get(f"{running.apps}/web-{port}/").status_code in (200, 426) for port in (8888, 9000))

            running.until(serves)
        yield running


@contextmanager
def running_site(
    authority: Authority,  # noqa: F811
    image: str,
    engine: docker.DockerClient,
    database_url: str,
    folder: Path,
    settings: EdgeSettings | None = None,
) -> Iterator[Site]:
    """Run a site without sessions, whose project `team-a` has alice and bob."""
    socket, said = folder / "api.sock", settings or EdgeSettings()
    environment = api_environment(authority, database_url, socket) | {"PENSTOCK_API_HEARTBEAT_INTERVAL_S": "0.5"}
    with running_edge(authority, f"unix:{socket}", folder / "edge", edge_settings=said.model_dump()) as edge:
        environment["PENSTOCK_API_APPS_URL"] = f"https://127.0.0.1:{edge.apps}"
        environment["PENSTOCK_API_APPS_NAME"] = said.apps_name or ""
        running = Site(authority, edge, environment, folder / "api.log")
        running.run("migrate")
        running.run("create-admin", "--name", "admin", stdin=PASSWORD)
        agent = make_agent(authority, edge.agents, folder)
        with running.log.open("ab") as log:
            api = forks.start([sys.executable, "-m", "api", "serve"], env=environment, stdout=log, stderr=log)
        try:
            _fill(running, agent, image)
            yield running
        finally:
            agent.stop()
            api.terminate()
            api.wait(60)
            remove_containers(engine, ancestor=image)


def _fill(site: Site, agent: Agent, image: str) -> None:
    site.until(lambda: _answers(site))
    agent.start()
    site.admin = site.sign_in("admin")
    for name in ("alice", "bob"):
        ok(site.admin.post(f"{V1}/users", json={"name": name, "password": PASSWORD, "must_change_password": False}))
    ok(site.admin.post(f"{V1}/users", json={"name": "carol", "password": PASSWORD, "must_change_password": True}))
    ok(site.admin.post(f"{V1}/images", json={"name": "web", "tag": "1", "reference": image}))
    project = {"name": "team-a", "quota_milli": 2000, "members": ["alice", "bob"], "period": {"ends_at": None}}
    ok(site.admin.post(f"{V1}/projects", json=project))
    site.until(lambda: ok(site.admin.get(f"{V1}/nodes")))


def _answers(site: Site) -> bool:
    try:
        return site.admin.get("/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def alice(site: Site) -> Iterator[httpx.Client]:
    with site.signed_in("alice") as browser:
        browser.base_url = site.apps
        yield browser


def seen(answer: httpx.Response) -> dict[str, Any]:
    """Return what the app saw."""
    shown = ok(answer)
    return {**shown, "headers": {name.lower(): text for name, text in shown["headers"].items()}}


def read_all(connection: WebSocket) -> None:
    while True:
        connection.recv(timeout=30)


def test_a_terminal_takes_frames_of_a_mebibyte_and_no_larger_ones(site: Site) -> None:
    """From the browser through the edge and the API to the agent, which say the same of a larger one."""
    counts = "import sys; print(len(sys.stdin.buffer.read(1 << 20)), flush=True); sys.stdin.read()"
    command = urlencode({"project": "team-a", "tty": "false", "command": json.dumps([str(PYTHON), "-c", counts])})
    url = f"wss://127.0.0.1:{site.edge.console}{V1}/sessions/web/exec?{command}"
    with site.signed_in("alice") as alice:
        headers = {"Cookie": f"__Host-penstock_session={alice.cookies['__Host-penstock_session']}"}
        origin = Origin(f"https://127.0.0.1:{site.edge.console}")
        with connect(url, ssl=site.trust, additional_headers=headers, origin=origin) as terminal:
            terminal.send(b"x" * MAX_FRAME)
            assert b"1048576" in terminal.recv(timeout=30)
            terminal.send(b"x" * (MAX_FRAME + 1))
            with pytest.raises(ConnectionClosed) as closed:
                read_all(terminal)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG


def test_the_owner_comes_through_without_the_prefix(alice: httpx.Client) -> None:
    assert seen(alice.get("/web-8888/lab/x%2Fy?a=b&c"))["path"] == "/lab/x%2Fy?a=b&c"
    assert seen(alice.get("/web-8888"))["path"] == "/"


def test_an_app_that_knows_its_prefix_sees_it(alice: httpx.Client) -> None:
    assert seen(alice.get("/team-a-web/api?x"))["path"] == "/team-a-web/api?x"


def test_a_key_opens_the_app_too_and_stays_outside(site: Site, alice: httpx.Client) -> None:
    with site.signed_in("alice") as browser:
        key = ok(browser.post(f"{V1}/api-keys", json={"name": "curl"}))["key"]
    answer = httpx.get(f"{site.apps}/web-8888/", verify=site.trust, headers={"Authorization": f"Bearer {key}"})
    assert "authorization" not in seen(answer)["headers"]
    other = alice.get("/web-8888/", headers={"Authorization": "token of the app"})
    assert seen(other)["headers"]["authorization"] == "token of the app", "the app's own business"


def test_without_a_login_a_browser_is_sent_to_it_and_a_program_is_told(site: Site) -> None:
    with httpx.Client(base_url=site.apps, verify=site.trust) as guest:
        page = guest.get("/web-8888/lab?a=b&c", headers={"Accept": "text/html"})
        told = guest.get("/web-8888/lab")
    assert page.status_code == 302
    came_from = f"https%3A%2F%2F127.0.0.1%3A{site.edge.apps}%2Fweb-8888%2Flab%3Fa%3Db%26c"
    assert page.headers["Location"] == f"https://127.0.0.1:{site.edge.console}/login?next={came_from}"
    assert told.status_code == 401


def test_somebody_else_finds_nothing(site: Site, alice: httpx.Client) -> None:
    with site.signed_in("bob") as bob:
        assert bob.get(f"{site.apps}/web-8888/").status_code == 404
    assert alice.get("/nothing-1/").status_code == 404
    assert site.admin.get(f"{site.apps}/web-8888/").status_code == 200


def test_our_cookie_is_not_seen_by_the_app_and_its_own_is(alice: httpx.Client) -> None:
    assert "__Host-penstock_session" in alice.cookies
    headers = seen(
        alice.get(
            "/web-8888/", headers={"Cookie": f"a=1; __Host-penstock_session={alice.cookies['__Host-penstock_session']}"}
        )
    )["headers"]
    assert headers["cookie"] == "a=1"
    assert "penstock" not in json.dumps({**headers, "host": ""}).replace("x-forwarded", "")


def test_nobody_says_who_he_is_but_the_edge(alice: httpx.Client) -> None:
    claims = {
        "X-Forwarded-User": "admin",
        "X-Client-Name": "worker1",
        "X-Client-Verify": "SUCCESS",
        "X-Original-URI": "/",
        "X-Penstock-Container": "session-of-somebody-else",
    }
    headers = seen(alice.get("/web-8888/", headers=claims))["headers"]
    assert headers["x-forwarded-user"] == "alice"
    assert headers["x-forwarded-prefix"] == "/web-8888"
    assert not {"x-client-name", "x-client-verify", "x-original-uri"} & set(headers)


@pytest.mark.parametrize("claim", ["/web-8888/", "/other-8888/"])
def test_the_path_that_counts_is_the_one_that_is_asked_for(site: Site, claim: str) -> None:
    with site.signed_in("bob") as bob:
        assert bob.get(f"{site.apps}/web-8888/", headers={"X-Original-URI": claim}).status_code == 404


def test_where_apps_are_is_told_to_the_edge_alone(site: Site, alice: httpx.Client) -> None:
    for port in (site.edge.console, site.edge.api):
        answer = alice.get(f"https://127.0.0.1:{port}{V1}/apps/authorize", headers={"X-Original-URI": "/web-8888/"})
        assert answer.status_code == 404
    assert alice.get("/-/authorize").status_code == 404


def test_files_of_pages_are_packed_and_pages_are_not(site: Site) -> None:
    with httpx.Client(base_url=f"https://127.0.0.1:{site.edge.console}", verify=site.trust) as guest:
        file, page = guest.get("/static/console/console.css"), guest.get("/docs")
    assert (file.status_code, file.headers.get("content-encoding")) == (200, "gzip")
    assert file.headers["x-request-id"]
    assert (page.status_code, page.headers.get("content-encoding")) == (200, None)


@pytest.mark.parametrize(
    ("told", "location"),
    [
        ("/lab", "/web-8888/lab"),
        ("/web-8888/lab", "/web-8888/lab"),
        ("https://{host}/lab", "/web-8888/lab"),
        ("http://{host}/lab", "/web-8888/lab"),
        ("https://elsewhere.example/lab", "https://elsewhere.example/lab"),
        ("lab", "lab"),
    ],
)
def test_the_app_may_send_the_browser_elsewhere(site: Site, alice: httpx.Client, told: str, location: str) -> None:
    host = f"127.0.0.1:{site.edge.apps}"
    answer = alice.get(f"/web-8888/go?to={told.format(host=host)}")
    assert answer.status_code == 302
    assert answer.headers["Location"] == location.replace("{host}", host)


def test_the_app_s_cookies_are_for_its_path_and_its_origin_is_not_the_console_s(alice: httpx.Client) -> None:
    answer = alice.get("/web-8888/")
    assert answer.headers["Set-Cookie"] == "app=1; Path=/web-8888/"
    assert answer.headers.get_list("Referrer-Policy") == ["same-origin"]
    assert not {name.lower() for name in web_app.OF_AN_ORIGIN} & set(answer.headers), "apps do not speak for the origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Content-Security-Policy"].startswith("frame-ancestors 'self' https://127.0.0.1")


def test_a_refusal_of_the_app_is_the_app_s(alice: httpx.Client) -> None:
    answer = alice.get("/web-8888/forbidden")
    assert (answer.status_code, answer.json()["path"]) == (403, "/forbidden")


def test_a_page_of_another_origin_does_nothing_in_the_app(site: Site, alice: httpx.Client) -> None:
    foreign = {"Origin": f"https://127.0.0.1:{site.edge.console}"}
    assert alice.post("/web-8888/x", content=b"1", headers=foreign).status_code == 403
    own = {"Origin": site.apps}
    assert seen(alice.post("/web-8888/x", content=b"1", headers=own))["body"] == 1


def test_large_uploads_go_through(alice: httpx.Client) -> None:
    assert seen(alice.post("/web-8888/upload", content=bytes(32 << 20)))["body"] == 32 << 20


def test_a_websocket_echoes(site: Site, alice: httpx.Client) -> None:
    cookie = {"Cookie": f"__Host-penstock_session={alice.cookies['__Host-penstock_session']}"}
    url = f"wss://127.0.0.1:{site.edge.apps}/web-9000/kernels?token=1"
    with connect(url, ssl=site.trust, additional_headers=cookie, origin=Origin(site.apps)) as app:
        hello = json.loads(app.recv(timeout=30))
        assert hello["path"] == "/kernels?token=1"
        assert "penstock_session" not in str(hello["headers"])
        for message in ("text", b"\x00\xff" * 70_000):
            app.send(message)
            assert app.recv(timeout=30) == message


@pytest.mark.parametrize("origin", ["https://evil.example", None])
def test_a_websocket_of_a_stranger_is_refused(site: Site, alice: httpx.Client, origin: str | None) -> None:
    cookie = {"Cookie": f"__Host-penstock_session={alice.cookies['__Host-penstock_session']}"} if origin else {}
    url = f"wss://127.0.0.1:{site.edge.apps}/web-9000/"
    asked = connect(url, ssl=site.trust, additional_headers=cookie, origin=Origin(origin) if origin else None)
    with pytest.raises(InvalidStatus) as refused, asked:
        pass
    assert refused.value.response.status_code == (403 if origin else 401)


@pytest.fixture
def page() -> Iterator[Page]:
    with new_page("127.0.0.1") as fresh:
        yield fresh


def test_a_browser_comes_by_way_of_the_login_to_the_app_and_its_websocket(site: Site, page: Page) -> None:
    page.goto(f"{site.apps}/web-8888/lab?a=b&c")
    assert page.url.startswith(f"https://127.0.0.1:{site.edge.console}/login?next=")
    sign_in(page, "alice", "Wrong1horse!")
    expect(page.get_by_role("alert")).to_contain_text("name or password")
    sign_in(page, "alice", PASSWORD)
    page.wait_for_url(f"{site.apps}/web-8888/lab?a=b&c")
    shown = json.loads(page.inner_text("body"))
    assert (shown["path"], shown["headers"]["X-Forwarded-User"]) == ("/lab?a=b&c", "alice")
    kernels = f"wss://127.0.0.1:{site.edge.apps}/web-9000/kernels"
    assert page.evaluate(f"({ECHO})({json.dumps(kernels)}, 'hello')") == "hello"


def test_who_has_a_given_password_chooses_another_one_first(site: Site, page: Page) -> None:
    page.goto(f"https://127.0.0.1:{site.edge.console}/login?next=https://evil.example/")
    sign_in(page, "carol", PASSWORD)
    for new, again, told in (("Short1!", "Short1!", "8 characters"), ("New1horse!", "New1house!", "twice")):
        page.get_by_label("New password", exact=True).fill(new)
        page.get_by_label("New password, again").fill(again)
        page.get_by_role("button", name="Change password").click()
        expect(page.get_by_role("alert")).to_contain_text(told)
    page.get_by_label("New password, again").fill("New1horse!")
    page.get_by_label("New password", exact=True).fill("New1horse!")
    page.get_by_role("button", name="Change password").click()
    page.wait_for_url(f"https://127.0.0.1:{site.edge.console}/")
    me = page.evaluate("async () => (await fetch('/api/v1/auth/me')).json()")
    assert (me["name"], me["must_change_password"]) == ("carol", False)


def removed_from_the_project(site: Site) -> None:
    ok(site.admin.patch(f"{V1}/projects/team-a", json={"members": ["bob"]}))


def disabled(site: Site) -> None:
    ok(site.admin.patch(f"{V1}/users/alice", json={"disabled": True}))


def signed_out(site: Site) -> None:
    ok(site.admin.delete(f"{V1}/users/alice/logins"))


@pytest.mark.parametrize("lose", [removed_from_the_project, disabled, signed_out])
def test_who_may_not_open_the_app_any_more_loses_what_is_open(
    site: Site, alice: httpx.Client, lose: Callable[[Site], None]
) -> None:
    """A WebSocket and an answer that goes on and on; the connection of somebody else to the same app stays."""
    url = f"wss://127.0.0.1:{site.edge.apps}/web-9000/"

    def open_as(client: httpx.Client) -> AbstractContextManager[WebSocket]:
        cookie = {"Cookie": f"__Host-penstock_session={client.cookies['__Host-penstock_session']}"}
        return connect(url, ssl=site.trust, additional_headers=cookie, origin=Origin(site.apps))

    try:
        with open_as(alice) as hers, open_as(site.admin) as other, alice.stream("GET", "/web-8888/drip") as drip:
            hers.recv(timeout=30)
            other.recv(timeout=30)
            lines = drip.iter_lines()
            assert next(lines) == "drop"
            began = time.monotonic()
            lose(site)
            with pytest.raises(ConnectionClosed):
                hers.recv(timeout=30)
            with suppress(httpx.RemoteProtocolError):
                for _ in lines:
                    assert time.monotonic() - began < 30
            time.sleep(1)
            other.send("still here")
            assert other.recv(timeout=30) == "still here"
        assert alice.get("/web-8888/").status_code in (401, 404)
    finally:
        ok(site.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice", "bob"]}))
        ok(site.admin.patch(f"{V1}/users/alice", json={"disabled": False}))


def test_the_app_ends_with_its_session(site: Site, alice: httpx.Client) -> None:
    """Runs last: afterwards there is no app."""
    with site.signed_in("alice") as browser:
        ok(browser.delete(f"{V1}/sessions/web", params={"project": "team-a"}))
    site.until(lambda: alice.get("/web-8888/").status_code == 404)
