"""Every command line of the reference documents, through the real command line to the real API in this process."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

import appliance.client.transport
from appliance.cli import config, enter, terminal
from appliance.client.place import Place
from appliance.client.transport import Transport
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.unit.appliance.cli.conftest import URL, Answer, Run, run  # noqa: F401

LINES = [
    line
    for line in (Path(__file__).parents[1] / "data" / "cli_lines.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
IMAGES = ("quickstart", "python", "base-notebook")
QUOTAS = {"team-a": 8000, "team-b": 2000, "team-c": 2000, "team-d": 8000}
EARLIER = ("frac05", "d-1-gggg", "d-2-gg", "d-3-gg")
"""Sessions of team-d that the lines speak of and do not submit."""


class AppConnection:
    """A connection of the client that leads to the application in this process, without a socket."""

    def __init__(self, portal: BlockingPortal, cluster: Cluster) -> None:
        self.portal, self.cluster = portal, cluster

    def request(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> None:
        async def ask() -> Answer:
            async with self.cluster.client() as http:
                answer = await http.request(method, target, content=content, headers=headers)
            return Answer(answer.status_code, answer.content, dict(answer.headers))

        self.answer = self.portal.call(ask)
        self.portal.call(self.cluster.settle)

    def getresponse(self) -> Answer:
        return self.answer


@pytest.fixture
def cluster(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """An application with what the lines take for granted, and a command line that is logged in to it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = {"pvc_root": "/srv/shared", "host_paths": ("/mnt", "/tmp"), "apps_url": "https://10.255.174.13:9443"}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(running_cluster(database_url, **settings)) as running,
    ):
        key = portal.call(prepare, running)
        monkeypatch.setattr(appliance.client.transport, "connect", connect_to(portal, running))
        config.save(config.Config(URL, key, "key-1"))
        yield running


def connect_to(portal: BlockingPortal, running: Cluster) -> Callable[[Transport, float | None], AppConnection]:
    def connect(_client: Transport, _timeout_s: float | None) -> AppConnection:
        return AppConnection(portal, running)

    return connect


async def prepare(running: Cluster) -> str:
    """Make projects, images, nodes and the earlier sessions; return the key of a user who is in every project."""
    alice = await running.user("alice")
    for name, quota in QUOTAS.items():
        await running.add_project(name, quota, "alice")
    for image in IMAGES:
        body = {"name": image, "tag": "1", "reference": f"reservoir:5000/{image}:1"}
        await ok(running.admin.post(f"{V1}/images", json=body))
    await running.add_node("worker1", gpus=8)
    await running.add_node("worker2", gpus=8)
    for name in EARLIER:
        earlier = {"name": name, "project": "team-d", "image": "python", "gpu_milli": 500, "interactive": True}
        await ok(alice.post(f"{V1}/sessions", json=earlier))
    await running.settle()
    return str(alice.headers["Authorization"].removeprefix("Bearer "))


def test_every_line_of_the_reference_works(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    shells: list[tuple[str, str]] = []

    def shell(place: Place, command: list[str], *, tty: bool) -> int:
        assert (command, tty) == (enter.SHELL, False)
        found = place.client.sessions.get(place.session, project=place.project)
        shells.append((found["name"], found["project"]))
        return 0

    monkeypatch.setattr(terminal, "run", shell)
    outputs = {}
    for line in LINES:
        program, *words = shlex.split(line)
        assert program == "penstock"
        code, out, err = run(*words)
        assert (code, err) == (0, ""), line
        outputs[line] = out
    assert shells == [("build1", "team-a"), ("frac05", "team-d"), ("pvc-test", "team-a")]
    assert any(line.startswith("hyper1 ") and "Running" in line for line in outputs["penstock list"].splitlines())
    assert "Status:        Running" in outputs["penstock get hyper1"]
    assert outputs[LINES[-1]].count("Terminat") == 3


def test_the_lines_ask_for_what_they_say(cluster: Cluster, run: Run) -> None:  # noqa: F811
    run("project", "set", "team-a")
    wanted: dict[str, dict[str, Any]] = {
        "test-ingress": {
            "kind": "interactive",
            "command": ["start-notebook.sh"],
            "args": ["--NotebookApp.base_url=test-ingress"],
            "urls": ["https://10.255.174.13:9443/test-ingress/"],
        },
        "netapp1": {
            "local_image": True,
            "image": "tensorflow:20.01.0",
            "args": ["/scripts/run.py", "--dataset_dir=/mnt/mount_0/dataset", "--num_mounts=2", "--num_devices=1"],
        },
        "a-1-g": {"kind": "training", "gpu_milli": 1000, "project": "team-a"},
        "pvc-test": {"kind": "training", "image": "quickstart:1"},
        "b-1-g06": {"kind": "interactive", "gpu_milli": 600, "project": "team-b"},
    }
    for line in LINES:
        _, verb, *rest = shlex.split(line)
        name = rest[0] if rest else ""
        if verb == "submit" and name in wanted:
            assert run(verb, *rest)[0] == 0, line
            project = wanted[name].get("project", "team-a")
            found = config.load().client.sessions.get(name, project=project)
            assert {key: found[key] for key in wanted[name]} == wanted[name]  # type: ignore[literal-required]
            assert found["created_by_cli"]
    specs = {spec.session_name: spec for spec in cluster.engine.specs.values()}
    assert [(mount.source, mount.target) for mount in specs["netapp1"].mounts] == [("/mnt", "/mnt"), ("/tmp", "/tmp")]
    volume = config.load().client.volumes.get("test", project="team-a")
    assert [(mount.source, mount.target) for mount in specs["pvc-test"].mounts] == [
        (f"/srv/shared/{volume['id']}", "/tmp/pvc1mount")
    ]
    assert specs["netapp1"].pull == "never"
    assert specs["netapp1"].shm_mib == specs["netapp1"].memory_mib // 2
    assert specs["test-ingress"].ports == [8888]
