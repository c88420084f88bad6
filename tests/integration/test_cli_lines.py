"""Every command line of the reference documents: the command over TLS to a control API in its own process."""

from __future__ import annotations

import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pexpect
import pytest

from common.protocol import HEARTBEAT_PATH
from tests import forks
from tests.api_process import api_environment
from tests.fakes.heartbeats import node_info
from tests.forks import PENSTOCK, Fork
from tests.integration.agent.conftest import Authority, authority, free_port  # noqa: F401
from tests.postgresql import new_database

LINES = [
    line
    for line in (Path(__file__).parents[1] / "data" / "cli_lines.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
PASSWORD = "Correct1horse!"
QUOTAS = {"team-a": 8, "team-b": 2, "team-c": 2, "team-d": 8}
EARLIER = ("frac05", "d-1-gggg", "d-2-gg", "d-3-gg")
"""Sessions of team-d that the lines speak of and do not submit."""


class Site:
    """A control API with two nodes that never fail, and a user's machine with the command."""

    def __init__(self, pki: Authority, database_url: str, folder: Path) -> None:
        self.pki, self.folder, self.port = pki, folder, free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.api_environment = api_environment(pki, database_url, self.port) | {
            "PENSTOCK_API_NODE_LOST_S": "3600",
            "PENSTOCK_API_PVC_ROOT": "/srv/shared",
            "PENSTOCK_API_HOST_PATHS": "/mnt:/tmp",
            "PENSTOCK_API_APPS_URL": "https://10.255.174.13:9443",
            "PENSTOCK_API_REGISTRIES": "reservoir:5000",
        }
        self.environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "PATH": f"{PENSTOCK.parent}:{os.environ['PATH']}",
        }

    def start(self) -> Fork:
        for words in (("migrate",), ("create-admin", "--name", "admin")):
            forks.run([sys.executable, "-m", "api", *words], self.api_environment, PASSWORD, check=True)
        with (self.folder / "api.log").open("wb") as log:
            command = [sys.executable, "-m", "tests.fakes.api"]
            process = forks.start(command, env=self.api_environment, stdout=log, stderr=log)
        context = ssl.create_default_context(cafile=str(self.pki.ca))
        self.until(lambda: _answers(f"{self.url}/health", context), "the API answers")
        for name in ("worker1", "worker2"):
            self._report(name)
        return process

    def penstock(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return forks.run([PENSTOCK, *words], self.environment, stdin)

    def ok(self, *words: str, stdin: str = "") -> str:
        result = self.penstock(*words, stdin=stdin)
        assert result.returncode == 0, (words, result.stderr, (self.folder / "api.log").read_text()[-3000:])
        return result.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "-o", "json"))

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, (what, (self.folder / "api.log").read_text()[-3000:])
            time.sleep(0.1)

    def runs(self, name: str, project: str) -> None:
        self.until(lambda: self.json("get", name, "-p", project)["state"] == "RUNNING", f"{name} runs")

    def _report(self, name: str) -> None:
        context = ssl.create_default_context(cafile=str(self.pki.ca))
        context.load_cert_chain(*map(str, self.pki.issue(name)))
        beat = {"name": name, "address": "127.0.0.1", "port": 6001, "boot": "b", "sequence": 1}
        beat["node_info"] = node_info(name, 8).model_dump(mode="json")
        answer = httpx.post(self.url + HEARTBEAT_PATH, json=beat, verify=context, timeout=60)
        assert answer.status_code == 200, answer.text


def _answers(url: str, context: ssl.SSLContext) -> bool:
    try:
        return httpx.get(url, verify=context).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def site(
    authority: Authority,  # noqa: F811
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A site with the projects and images that the lines take for granted; its user alice is logged in."""
    site = Site(authority, new_database(postgresql_server), tmp_path_factory.mktemp("site"))
    process = site.start()
    try:
        _log_in(site, "admin")
        site.ok("user", "create", "alice", "--password-stdin", stdin=PASSWORD)
        for name, quota in QUOTAS.items():
            site.ok("project", "create", name, "-g", str(quota), "--member", "alice")
        for image in ("quickstart", "python", "base-notebook"):
            site.ok("image", "create", f"{image}:1", f"reservoir:5000/{image}:1")
        _log_in(site, "alice")
        for name in EARLIER:
            site.ok("submit", name, "-p", "team-d", "-i", "python", "-g", "0.5", "--interactive", "--wait")
        yield site
    finally:
        process.terminate()
        process.wait(60)


def _log_in(site: Site, name: str) -> None:
    site.ok("login", site.url, "--user", name, "--ca", str(site.pki.ca), "--password-stdin", stdin=PASSWORD)


def test_every_line_of_the_reference_works(site: Site) -> None:
    project = ""
    for line in LINES:
        program, verb, *rest = shlex.split(line)
        assert program == "penstock"
        chosen = rest[rest.index("-p") + 1] if "-p" in rest else project
        if verb in ("bash", "logs"):
            site.runs(rest[0], chosen)
        # the shell of these sessions shows what is typed, and ends at `exit`
        out = site.ok(verb, *rest, stdin="exit\n" if verb == "bash" else "")
        if verb == "project":
            project = rest[-1]
        elif verb == "submit":
            assert site.json("get", rest[0], "-p", chosen)["created_by_cli"]
        elif verb == "list":
            assert out.splitlines()[0].split()[:4] == ["NAME", "STATUS", "AGE", "NODE"]
            assert "hyper1" in out
    names = {session["name"] for session in site.json("list", "-p", "team-d") if session["state"] == "RUNNING"}
    assert names == {"frac05"}


def test_a_shell_on_a_terminal_shows_what_is_typed(site: Site) -> None:
    shell = pexpect.spawn(
        str(PENSTOCK), ["bash", "frac05", "-p", "team-d"], env=site.environment, encoding="utf-8", timeout=60
    )
    shell.send("echo hello")
    shell.expect("echo hello")
    shell.send("\x00")
    shell.kill(signal.SIGKILL)
    shell.wait()
    shell.close()


def test_addresses_of_an_app(site: Site) -> None:
    site.ok(
        "submit",
        "app",
        "-p",
        "team-a",
        "-i",
        "python",
        "--cpu",
        "1",
        *("--service-type", "ingress", "--port", "8888", "--port", "6006"),
    )
    found = site.json("get", "app", "-p", "team-a")
    assert found["urls"] == [f"https://10.255.174.13:9443/app-{port}/" for port in (6006, 8888)]
    assert found["urls"][0] in site.ok("list", "-p", "team-a")


def test_a_shell_completes_the_names_of_sessions_and_projects(site: Site) -> None:
    site.ok("project", "set", "team-d")
    script = "\n".join(
        (
            "source <(penstock completion bash)",
            "COMP_WORDS=(penstock get fr) COMP_CWORD=2; _penstock_completion penstock; echo ${COMPREPLY[@]}",
            "COMP_WORDS=(penstock project get team) COMP_CWORD=3; _penstock_completion penstock; echo ${COMPREPLY[@]}",
            "COMP_WORDS=(penstock sub) COMP_CWORD=1; _penstock_completion penstock; echo ${COMPREPLY[@]}",
        )
    )
    result = subprocess.run(["bash", "-c", script], env=site.environment, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["frac05", "team-a team-b team-c team-d", "submit"], result.stderr
