"""Nodes that restart with all that runs there, and engines that restart: what becomes of sessions."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.integration.agent.conftest import Authority, authority, load_busybox  # noqa: F401
from tests.integration.machine import Machine, running_machine
from tests.integration.test_api_agent import PASSWORD, Site
from tests.postgresql import new_database

RESTARTED = "its node restarted while it ran"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with running_machine() as running:
        yield running


@pytest.fixture(scope="module")
def site(
    authority: Authority,  # noqa: F811
    machine: Machine,
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A site whose only worker is the machine."""
    running = Site(authority, new_database(postgresql_server), tmp_path_factory.mktemp("site"))
    running.run("migrate")
    running.run("create-admin", "--name", "admin", stdin=PASSWORD)
    client = docker.DockerClient(base_url=machine.address)
    try:
        running.start()
        running.agent.start(machine.start)
        login = running.call("POST", "/auth/login", {"name": "admin", "password": PASSWORD})
        running.client.headers["X-CSRF-Token"] = login["csrf_token"]
        running.call("POST", "/images", {"name": "busybox", "tag": "1", "reference": load_busybox(client)})
        running.call("POST", "/projects", {"name": "team-a", "quota_milli": 2000, "period": {"ends_at": None}})
        running.until(lambda: running.get("/nodes"))
        yield running
    finally:
        client.close()
        running.agent.stop()
        running.stop()
        running.client.close()


def begin(site: Site, name: str, **more: Any) -> None:
    body = {"name": name, "project": "team-a", "image": "busybox", "command": ["sleep", "600"], "gpu_milli": 250}
    site.call("POST", "/sessions", body | more)
    site.until_state(name, "RUNNING")


def session(site: Site, name: str) -> dict[str, Any]:
    return dict(site.get(f"/sessions/{name}", project="team-a"))


def test_all_restarts_at_once(site: Site, machine: Machine) -> None:
    """Master and worker lose their power; what had come to its end before that keeps it."""
    begin(site, "trains")
    begin(site, "works", interactive=True)
    begin(site, "gang", replicas=2)
    site.submit("broken", "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done; exit 3", gpu_milli=100)
    broken = site.until_state("broken", "RUNNING")
    site.stop(signal.SIGKILL)
    client = docker.DockerClient(base_url=machine.address)
    client.containers.get(f"penstock-session-{broken['id']}-0-0").exec_run(["touch", "/tmp/go"])
    site.until(lambda: len(client.containers.list()) == 4)
    client.close()
    machine.cut_power()
    machine.boot()
    site.agent.start(machine.start)
    site.start()
    site.until(lambda: session(site, "trains")["attempt"] == 1)
    site.until(lambda: session(site, "gang")["attempt"] == 1)
    site.until_state("trains", "RUNNING")
    assert len(site.until_state("gang", "RUNNING")["containers"]) == 2
    works = site.until_state("works", "FAILED")
    assert (works["reason"], works["cause"], works["exit_code"]) == (RESTARTED, "node-restarted", None)
    broken = site.until_state("broken", "FAILED")
    assert (broken["reason"], broken["cause"], broken["exit_code"]) == ("its command ended with exit code 3", "", 3)
    assert f"{RESTARTED}; it starts again" in site.log.read_text()


def test_an_engine_that_restarts(site: Site, machine: Machine) -> None:
    """Ours leaves containers alone; one of another configuration ends them with itself, by no fault of theirs."""
    begin(site, "learns")
    begin(site, "plays", interactive=True)
    machine.stop_engine()
    machine.start_engine("--live-restore")
    site.until(lambda: session(site, "learns")["attempt"] == 1)
    plays = site.until_state("plays", "FAILED")
    assert (plays["reason"], plays["cause"]) == (
        "the container engine of its node was restarted, and ended it",
        "engine-restarted",
    )
    started = site.until_state("learns", "RUNNING")["started_at"]
    machine.stop_engine()
    machine.start_engine("--live-restore")
    begin(site, "next")
    learns = session(site, "learns")
    assert (learns["state"], learns["attempt"], learns["started_at"]) == ("RUNNING", 1, started)
