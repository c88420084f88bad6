"""Sandboxes on a real container engine: what they deny is denied and told, and nothing else changes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest

from appliance.agent.protocol import ContainerSpec, Denial
from tests.integration.agent.calls import launch, log_of, put, states, wait_for
from tests.integration.agent.conftest import Agent, Authority, FakeApi, make_agent

Make = Callable[..., ContainerSpec]
ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "roles/node_agent/templates/usr/lib/penstock/sandbox-runtime.j2"
START_S = 30


@pytest.fixture(scope="module")
def daemon() -> Iterator[Path]:
    """A container engine of its own, with the runtime for sandboxes: the folder with its `docker.sock`.

    It has a network namespace of its own, so that it leaves the bridge of the machine's engine alone.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-sb-"))
    runtime = folder / "sandbox-runtime"
    runtime.write_text(SCRIPT.read_text().replace("{{ node_agent_venv }}/bin/python -I", sys.executable))
    runtime.chmod(0o755)
    arguments = {
        "--data-root": folder / "data",
        "--exec-root": folder / "exec",
        "--pidfile": folder / "pid",
        "--host": f"unix://{folder}/docker.sock",
        "--add-runtime": f"penstock={runtime}",
        "--bridge": "none",
    }
    words = [f"{option}={value}" for option, value in arguments.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--net", "dockerd", *words, "--iptables=false", "--ip-forward=false"],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    try:
        until((folder / "docker.sock").exists, START_S)
        yield folder
    finally:
        process.terminate()
        process.wait(START_S)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def client(daemon: Path) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=f"unix://{daemon}/docker.sock")
    yield client
    client.close()


@pytest.fixture(scope="module")
def carried(engine: docker.DockerClient, client: docker.DockerClient, image: str) -> str:
    """The image, on the engine with sandboxes too."""
    client.images.load(b"".join(engine.images.get(image).save(named=True)))
    return image


@pytest.fixture
def agent(
    daemon: Path, client: docker.DockerClient, authority: Authority, fake_api: FakeApi, tmp_path: Path, carried: str
) -> Iterator[Agent]:
    """A started agent that tells at once."""
    agent = make_agent(authority, fake_api.port, tmp_path)
    agent.environment |= {
        "PENSTOCK_AGENT_DOCKER_SOCKET": str(daemon / "docker.sock"),
        "PENSTOCK_AGENT_SANDBOX_SOCKET": str(daemon / "agent.sock"),
        "PENSTOCK_AGENT_USE_INTERVAL_S": "0.2",
    }
    agent.start()
    yield agent
    agent.stop()
    for container in client.containers.list(all=True):
        container.remove(force=True)


def sandbox(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"name": "strict", "rules": list(rules)}


def told(api: FakeApi, container: str) -> dict[tuple[str, str], Denial]:
    """Return the last word on each series of a container, by process and call."""
    return {(each.process, each.call): each for each in api.denials if each.container_id == container}


def counts(api: FakeApi, container: str) -> dict[tuple[str, str], int]:
    return {key: denial.count for key, denial in told(api, container).items()}


def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it has not come to that"
        time.sleep(0.05)


def test_a_denied_call_fails_and_is_told_and_others_do_not(agent: Agent, spec: Make, fake_api: FakeApi) -> None:
    script = "for n in 1 2 3; do mkdir /tmp$n; done; echo written > /note; cat /note; echo $PENSTOCK_SANDBOX"
    wanted = spec(
        command=["sh", "-c"],
        args=[script],
        environment={"PENSTOCK_SANDBOX": "of my own"},
        sandbox=sandbox({"calls": ["mkdir", "mkdirat"], "errno": "EROFS"}),
    )
    with agent.client() as client:
        launch(client, wanted)
        lines = log_of(client, wanted.id).splitlines()
    assert sum("Read-only file system" in line for line in lines) == 3
    assert lines[-2:] == ["written", "strict"]
    until(lambda: counts(fake_api, wanted.id) == {("mkdir", "mkdir"): 3})
    [denial] = told(fake_api, wanted.id).values()
    assert (denial.session_id, denial.process, denial.call, denial.effect) == (
        wanted.session_id,
        "mkdir",
        "mkdir",
        "EROFS",
    )
    assert 1 < denial.pid < 100
