"""Health of a real agent at a real API: what closes a node, and how soon it is seen that an agent is gone."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.integration.agent.conftest import (
    Authority,
    authority,  # noqa: F401
    image,  # noqa: F401
)
from tests.integration.test_api_agent import Site
from tests.postgresql import new_database

SEEN_S = 15
"""So soon it is seen that an agent is gone, as we say: two of its heartbeats, and a look of the leader."""


@pytest.fixture
def site(
    authority: Authority,  # noqa: F811
    image: str,  # noqa: F811
    engine: docker.DockerClient,
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A site of one node with the heartbeats of a real one, whose agent's certificate matters and ends too soon."""
    made = Site(authority, new_database(postgresql_server), tmp_path_factory.mktemp("site"))
    made.environment |= {
        "PENSTOCK_API_HEARTBEAT_INTERVAL_S": "5",
        "PENSTOCK_API_NODE_LOST_S": "15",
        "PENSTOCK_API_HEALTH_CLOSES": "certificate",
    }
    made.agent.environment |= {
        "PENSTOCK_AGENT_HEALTH_INTERVAL_S": "1",
        "PENSTOCK_AGENT_HEALTH_CERTIFICATE_WARN_DAYS": "100000",
        "PENSTOCK_AGENT_HEALTH_CERTIFICATE_FAIL_DAYS": "100000",
    }
    with made.serving(image, engine):
        made.call("POST", "/projects", {"name": "team-a", "quota_milli": 2000, "period": {"ends_at": None}})
        yield made


def check(site: Site, identity: str) -> dict[str, Any]:
    found = site.get("/health/checks", node="worker1")
    return next((each for each in found if each["check"] == identity), {"state": ""})


def test_a_failing_check_closes_a_node_and_an_agent_that_is_gone_is_seen_soon(site: Site) -> None:
    site.until(lambda: site.get("/nodes/worker1")["unhealthy"].startswith("certificate "))
    expected = {"agent", "authority", "certificate", "clock", "disk", "engine", "memory"}
    # what the leader finds comes a moment after what the agent tells
    site.until(lambda: expected <= {each["check"] for each in site.get("/health/checks", node="worker1")})
    site.submit("waits", "sleep", "600")
    why = "no node is ready, worker1 is unhealthy (certificate "
    site.until(lambda: site.get("/sessions/waits", project="team-a")["reason"].startswith(why))

    site.agent.stop()
    site.agent.environment |= {
        "PENSTOCK_AGENT_HEALTH_CERTIFICATE_WARN_DAYS": "1",
        "PENSTOCK_AGENT_HEALTH_CERTIFICATE_FAIL_DAYS": "0",
    }
    site.agent.start()
    site.until_state("waits", "RUNNING")
    assert site.get("/nodes/worker1")["unhealthy"] == ""
    history = site.get("/health/changes", node="worker1", check="certificate")
    assert [(one["before"], one["after"]) for one in history] == [("fail", "warn"), (None, "fail")]

    site.until(lambda: check(site, "agent")["state"] == "ok")
    assert site.agent.process is not None
    site.agent.process.send_signal(signal.SIGKILL)
    began = time.monotonic()
    site.until(lambda: check(site, "agent")["state"] == "fail")
    took = time.monotonic() - began
    print(f"an agent that was killed is seen after {took:.1f} s")
    assert took <= SEEN_S
    site.agent.start()
    site.until(lambda: check(site, "agent")["state"] == "ok")
    site.delete("waits")
    site.until(lambda: not site.get("/sessions"))
