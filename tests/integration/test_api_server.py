"""`python -m api serve` on a unix socket, as the edge reaches it."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import unix_connect

from common.protocol import HEARTBEAT_PATH
from tests import forks
from tests.api_process import api_environment
from tests.fakes.heartbeats import node_info
from tests.forks import Fork
from tests.installed import ADMIN_KEY
from tests.integration.agent.conftest import Authority, authority  # noqa: F401

BEAT = {
    "name": "worker1",
    "address": "127.0.0.1",
    "port": 6001,
    "boot": "b",
    "sequence": 1,
    "node_info": node_info("worker1", 1).model_dump(mode="json"),
}
SERVE = [sys.executable, "-m", "api", "serve"]


@pytest.fixture
def environment(authority: Authority, database_url: str, tmp_path: Path) -> dict[str, str]:  # noqa: F811
    return api_environment(authority, database_url, tmp_path / "api.sock")


@pytest.fixture
def server(environment: dict[str, str], tmp_path: Path) -> Iterator[Fork]:
    path = tmp_path / "api.sock"
    path.touch()  # what a crash leaves behind is replaced
    with (tmp_path / "log").open("w") as log:
        process = forks.start(SERVE, environment, stderr=log)
    deadline = time.monotonic() + 60
    while not path.is_socket():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process
    if process.poll() is None:
        process.terminate()
        process.wait(60)


def client(tmp_path: Path) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "api.sock"), retries=3), base_url="http://api")


def test_the_socket(server: Fork, tmp_path: Path) -> None:
    with client(tmp_path) as edge:
        assert edge.get("/health").json()["status"] == "healthy"
        assert (tmp_path / "api.sock").stat().st_mode & 0o777 == 0o660, "for owner and group alone"
        assert "Server" not in edge.get("/health").headers
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    assert not (tmp_path / "api.sock").exists()


@pytest.mark.usefixtures("server")
def test_the_edge_says_who_the_agent_is(tmp_path: Path) -> None:
    with client(tmp_path) as edge:
        good = {"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}
        assert edge.post(HEARTBEAT_PATH, json=BEAT, headers=good).status_code == 200
        assert edge.post(HEARTBEAT_PATH, json=BEAT).status_code == 401
        none = {"X-Client-Verify": "NONE", "X-Client-Name": "worker1"}
        assert edge.post(HEARTBEAT_PATH, json=BEAT, headers=none).status_code == 401


@pytest.mark.usefixtures("server")
def test_an_edge_that_sends_a_body_that_is_too_large_hears_the_refusal(tmp_path: Path) -> None:
    """It sends all of what it holds before it listens, and would say 502 where the connection has ended before."""
    with client(tmp_path) as edge:
        edge.get("/health")
    head = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\n"
    body = b" " * (2 << 20)
    for length in (f"Content-Length: {len(body)}\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n200000\r\n"):
        with socket.socket(socket.AF_UNIX) as guest:
            guest.settimeout(20)
            guest.connect(str(tmp_path / "api.sock"))
            guest.sendall(head + length.encode() + body)
            assert guest.recv(0x10000).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_end_is_refused_and_not_kept(server: Fork, tmp_path: Path) -> None:
    """Whoever sends on after the answer costs no memory, and has the connection no longer."""
    with client(tmp_path) as edge:
        edge.get("/health")
    before = peak_mib(server.pid)
    part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with socket.socket(socket.AF_UNIX) as guest:
        guest.settimeout(20)
        guest.connect(str(tmp_path / "api.sock"))
        head = "POST /api/v1/auth/login HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n"
        guest.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
        with suppress(OSError):
            for _ in range(2000):
                guest.sendall(part)
        answer = guest.recv(0x10000)
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(20):
                guest.sendall(b"1\r\n \r\n")
                time.sleep(0.05)
            pytest.fail("what was refused is still taken")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert peak_mib(server.pid) - before < 16
    with client(tmp_path) as edge:
        assert edge.get("/health").is_success


def peak_mib(pid: int) -> int:
    """Return the most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) // 1024


@pytest.mark.usefixtures("server")
def test_commands_and_queries_are_in_no_log(tmp_path: Path) -> None:
    key = {"Authorization": f"Bearer {ADMIN_KEY}"}
    with client(tmp_path) as edge:
        assert edge.get("/health", params={"token": "tea-leaves"}).status_code == 200
        asked = {"X-Original-URI": "/web-8888/?token=tea-leaves"}
        assert edge.get("/api/v1/apps/authorize", headers={**key, **asked}).headers["X-Status"] == "404"
    uri = "ws://api/api/v1/sessions/desk/exec?project=team-a&command=%5B%22tea-leaves%22%5D"
    with unix_connect(str(tmp_path / "api.sock"), uri, additional_headers=key, open_timeout=60) as terminal:
        assert "there is no project team-a" in str(terminal.recv(timeout=60))
    assert "tea-leaves" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"PENSTOCK_API_AGENT_CA": "/nowhere/ca.crt"}, "cannot be read"),
        (
            {"PENSTOCK_API_TLS_CERT": "/nowhere/node.crt", "PENSTOCK_API_TLS_KEY": "/nowhere/node.key"},
            "/nowhere/node.crt: the certificate cannot be read",
        ),
        ({"PENSTOCK_API_SOCKET": "/nowhere/api.sock"}, "the socket cannot be made"),
        (
            {"PENSTOCK_API_DATABASE_URL": "postgresql+psycopg:///x?host=/nowhere"},
            "the database cannot be reached",
        ),
        ({"PENSTOCK_API_DATABASE_URL": "mysql://x"}, "PENSTOCK_API_DATABASE_URL"),
        ({"PENSTOCK_API_SPLIT": "2"}, "unknown setting"),
    ],
)
def test_what_keeps_it_from_serving_is_said(environment: dict[str, str], change: dict[str, str], text: str) -> None:
    result = forks.run(SERVE, environment | change)
    assert result.returncode not in {0, 1}
    assert text in result.stderr
    assert "Hint:" in result.stderr
    assert "Traceback" not in result.stderr
