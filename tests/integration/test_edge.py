"""The edge before an API: what it tells the API of a request, whatever the client claims."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from common import certificates, problem
from common.protocol import HEARTBEAT_PATH
from common.settings.edge import EdgeSettings
from tests.integration.agent.conftest import Authority, authority  # noqa: F401
from tests.integration.echo import Echo, running_echo
from tests.integration.edge import AGENT, Edge, running_edge


@pytest.fixture
def edge(authority: Authority, tmp_path: Path) -> Iterator[Edge]:  # noqa: F811
    with running_echo() as port, running_edge(authority, f"127.0.0.1:{port}", tmp_path) as running:
        yield running


def test_the_api_learns_that_everybody_comes_encrypted_whatever_they_say(edge: Edge) -> None:
    for port in (edge.console, edge.api, edge.apps):
        httpx.get(f"https://127.0.0.1:{port}/", headers={"X-Forwarded-Proto": "http"}, verify=False)
        assert Echo.asked[-1]["x-forwarded-proto"] == "https"


def test_who_calls_by_a_name_sees_the_companys_certificate_and_all_others_the_sites(
    authority: Authority,  # noqa: F811
    tmp_path: Path,
) -> None:
    name = "gpu.example.com"
    company, key = authority.issue(name)
    (tmp_path / "own.crt").write_bytes(company.read_bytes())
    (tmp_path / "own.key").write_bytes(key.read_bytes())
    settings = EdgeSettings(names=[name], certificate_file="/c.pem", key_file="/k.pem").model_dump()
    more = {"edge_settings": settings, "edge_company_files": str(tmp_path / "own")}
    trusted = ssl.create_default_context(cafile=authority.ca)
    with running_echo() as api, running_edge(authority, f"127.0.0.1:{api}", tmp_path, **more) as edge:
        for port in (edge.console, edge.api, edge.apps):
            shown = {called: _shown(trusted, port, called) for called in (name, "localhost", "master")}
            assert shown == {name: name, "localhost": "master", "master": "master"}
            asked = httpx.get(f"https://127.0.0.1:{port}/api/v1/health", headers={"Host": name}, verify=False)
            assert asked.headers.get_list("X-Request-Id") == [Echo.asked[-1]["x-request-id"]]


def test_a_name_may_be_as_long_as_names_of_dns_are(authority: Authority, tmp_path: Path) -> None:  # noqa: F811
    name = ".".join(["a" * 62] * 4)
    company, key = authority.issue("gpu.example.com")
    (tmp_path / "own.crt").write_bytes(company.read_bytes())
    (tmp_path / "own.key").write_bytes(key.read_bytes())
    settings = EdgeSettings(names=[name], certificate_file="/c.pem", key_file="/k.pem").model_dump()
    more = {"edge_settings": settings, "edge_company_files": str(tmp_path / "own")}
    with running_echo() as api, running_edge(authority, f"127.0.0.1:{api}", tmp_path, **more) as edge:
        asked = httpx.get(f"https://127.0.0.1:{edge.console}/", headers={"Host": name}, verify=False)
        assert (asked.status_code, Echo.asked[-1]["host"]) == (200, name)


def _shown(trusted: ssl.SSLContext, port: int, name: str) -> str:
    """Who the certificate speaks for that a caller by a name sees; it has to count, whatever it is for."""
    trusted.check_hostname = False
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        trusted.wrap_socket(plain, server_hostname=name) as connection,
    ):
        said: Any = connection.getpeercert()
    return str(dict(part for parts in said["subject"] for part in parts)["commonName"])


def test_what_queries_say_is_in_no_log_of_requests(edge: Edge, tmp_path: Path) -> None:
    """Commands for terminals and tokens of apps; the page that a browser comes from has some as well."""
    came_from = {"Referer": "https://127.0.0.1/web-1/?token=tea-leaves"}
    asked = [(edge.console, "/api/v1/sessions/a/exec"), (edge.api, "/api/v1/sessions/b/exec"), (edge.apps, "/web-1/c")]
    for port, path in asked:
        httpx.get(f"https://127.0.0.1:{port}{path}?command=tea-leaves", headers=came_from, verify=False)
    log, deadline = tmp_path / "access.log", time.monotonic() + 60
    while not all(f"GET {path} " in log.read_text() for _, path in asked):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    assert "tea-leaves" not in log.read_text()


def test_heartbeats_leave_nothing_on_the_disk_and_refusals_do(
    edge: Edge,
    authority: Authority,  # noqa: F811
    tmp_path: Path,
) -> None:
    """A heartbeat each five seconds is 17,280 a day and node; it had a line of 112 bytes, 1.93 MB."""
    certificate, key = authority.issue(AGENT)
    trusted = certificates.context(ssl.Purpose.SERVER_AUTH, authority.ca, certificate, key)
    with httpx.Client(base_url=f"https://127.0.0.1:{edge.agents}", verify=trusted) as agent:
        for _ in range(100):
            assert agent.post(HEARTBEAT_PATH).status_code == 200
        assert agent.post("/elsewhere").status_code == 404
    log, deadline = tmp_path / "agents.log", time.monotonic() + 60
    while '"POST /elsewhere" 404' not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert HEARTBEAT_PATH not in log.read_text()


def test_the_edge_names_each_request_and_no_client_does(edge: Edge) -> None:
    claimed = {"X-Request-Id": "mine", "Authorization": "Bearer psk_x"}
    names = set()
    for port in (edge.console, edge.api, edge.apps):
        httpx.get(f"https://127.0.0.1:{port}/", headers=claimed, verify=False)
        names.add(Echo.asked[-1]["x-request-id"])
    assert len(names) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", name) for name in names)


def test_what_the_edges_answer_themselves_names_its_request_too(edge: Edge) -> None:
    """Where the API is asked, where it is not, and where it is too much; what the API says stays its own."""
    large = b"x" * (3 << 20)
    for port in (edge.console, edge.api):
        passed = httpx.get(f"https://127.0.0.1:{port}/", verify=False)
        assert passed.headers.get_list("X-Request-Id") == [passed.json()["x-request-id"]]
        for answer in (
            httpx.get(f"https://127.0.0.1:{port}/api/v1/apps/authorize", verify=False),
            httpx.post(f"https://127.0.0.1:{port}/", content=large, verify=False),
            httpx.get(f"https://127.0.0.1:{port}/" + "x" * 40_000, verify=False),
            httpx.get(f"https://127.0.0.1:{port}/", headers={"X-Long": "x" * 40_000}, verify=False),
            httpx.get(f"https://127.0.0.1:{port}/-/away", headers={"Accept": "text/html"}, verify=False),
        ):
            told = answer.json()
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.headers.get_list("X-Request-Id") == [told["request_id"]]
            assert re.fullmatch(r"[0-9a-f]{32}", told["request_id"])
            assert told["status"] == answer.status_code >= 400
            assert problem.read(answer.status_code, answer.content)
    for port, path in ((edge.apps, "/web-1/"), (edge.agents, "/elsewhere"), (edge.agents, HEARTBEAT_PATH)):
        answer = httpx.get(f"https://127.0.0.1:{port}{path}", verify=False)
        [name] = answer.headers.get_list("X-Request-Id")
        assert re.fullmatch(r"[0-9a-f]{32}", name), path


def test_headers_that_are_too_large_are_told_as_such(edge: Edge) -> None:
    """An app may set as many cookies as it likes for a name above the console's."""
    cookies = "; ".join(f"a{number}={'x' * 4000}" for number in range(12))
    for port in (edge.console, edge.api):
        told = httpx.get(f"https://127.0.0.1:{port}/", headers={"Cookie": cookies}, verify=False)
        assert (told.status_code, told.json()["status"]) == (431, 431)
        assert told.json()["detail"] == "the headers are larger than the edge takes"
        assert "cookies" in told.json()["errors"][0]["hint"]


def test_the_console_is_at_no_name_of_an_app(authority: Authority, tmp_path: Path) -> None:  # noqa: F811
    """What an app sets for its name would be sent there."""
    console, app = "console.gpu.test", f"8888-{'0' * 32}.apps.gpu.test"
    said = EdgeSettings(names=[console], apps_name="apps.gpu.test").model_dump()
    with (
        running_echo() as api,
        running_edge(authority, f"127.0.0.1:{api}", tmp_path, edge_settings=said) as edge,
    ):
        for port in (edge.console, edge.api):
            url = f"https://127.0.0.1:{port}/login"
            answers = {
                host: httpx.get(url, headers={"Host": f"{host}:{port}"}, verify=False)
                for host in (console, "127.0.0.1", app, "any.apps.gpu.test", "apps.gpu.test")
            }
            assert [answer.status_code for answer in answers.values()] == [200, 200, 404, 404, 404]
            assert f"https://{console}:{edge.console}/" in answers[app].text


def test_an_api_that_is_away_is_told_in_the_same_form(
    authority: Authority,  # noqa: F811
    tmp_path: Path,
) -> None:
    with running_edge(authority, f"unix:{tmp_path}/nobody.sock", tmp_path) as edge:
        for port in (edge.console, edge.api):
            answer = httpx.get(f"https://127.0.0.1:{port}/api/v1/sessions", verify=False)
            told = answer.json()
            assert (answer.status_code, told["detail"]) == (502, "the API does not answer")
            assert answer.headers["X-Request-Id"] == told["request_id"]
            assert f"(request {told['request_id']})" in str(problem.read(502, answer.content))
            page = httpx.get(f"https://127.0.0.1:{port}/sessions", headers={"Accept": "text/html"}, verify=False)
            assert (page.status_code, page.headers["Content-Type"]) == (502, "text/html")
            assert '<meta http-equiv="refresh" content="5">' in page.text, "a browser that waits comes in by itself"
            assert page.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert page.headers["Cache-Control"] == "no-store"
            assert page.headers["X-Request-Id"] in page.text
