"""The edge before an API: what it tells the API of a request, whatever the client claims."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.agent.conftest import Authority, authority  # noqa: F401
from tests.integration.echo import Echo, running_echo
from tests.integration.edge import Edge, running_edge


@pytest.fixture
def edge(authority: Authority, tmp_path: Path) -> Iterator[Edge]:  # noqa: F811
    with running_echo() as port, running_edge(authority, f"127.0.0.1:{port}", tmp_path) as running:
        yield running


def test_the_api_learns_that_everybody_comes_encrypted_whatever_they_say(edge: Edge) -> None:
    for port in (edge.console, edge.api, edge.apps):
        httpx.get(f"https://127.0.0.1:{port}/", headers={"X-Forwarded-Proto": "http"}, verify=False)
        assert Echo.asked[-1]["x-forwarded-proto"] == "https"


def test_what_queries_say_is_in_no_log_of_requests(edge: Edge, tmp_path: Path) -> None:
    """Commands for terminals and tokens of apps; the page that a browser comes from has some as well."""
    came_from = {"Referer": "https://127.0.0.1/web-1/?token=tea-leaves"}
    asked = [(edge.console, "/api/v1/sessions/a/exec"), (edge.api, "/api/v1/sessions/b/exec"), (edge.apps, "/web-1/c")]
    for port, path in asked:
        httpx.get(f"https://127.0.0.1:{port}{path}?command=tea-leaves", headers=came_from, verify=False)
    log, deadline = tmp_path / "access.log", time.monotonic() + 10
    while not all(f"GET {path} " in log.read_text() for _, path in asked):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    assert "tea-leaves" not in log.read_text()


def test_the_edge_names_each_request_and_no_client_does(edge: Edge) -> None:
    claimed = {"X-Request-Id": "mine", "Authorization": "Bearer psk_x"}
    names = set()
    for port in (edge.console, edge.api, edge.apps):
        httpx.get(f"https://127.0.0.1:{port}/", headers=claimed, verify=False)
        names.add(Echo.asked[-1]["x-request-id"])
    assert len(names) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", name) for name in names)
