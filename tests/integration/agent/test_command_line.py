"""The whole way of a session: the real command, a real control API, a real agent, Docker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import httpx
import pexpect
import pytest

from tests import forks
from tests.api_process import api_environment
from tests.forks import PENSTOCK, Fork
from tests.integration.agent.conftest import Authority, free_port, make_agent
from tests.integration.own_engine import remove_containers
from tests.postgresql import new_database

PASSWORD = "Turb1ne~wheel"


@dataclass
class User:
    """The command line of one person."""

    config: Path
    url: str
    ca: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(self.config), "TERM": "xterm"}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return forks.run([PENSTOCK, *arguments], self.environment, stdin)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}"
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def try_log_in(self, name: str) -> subprocess.CompletedProcess[str]:
        return self.run("login", self.url, "--user", name, "--ca", str(self.ca), "--password-stdin", stdin=PASSWORD)

    def until(self, name: str, state: str, *, reason: bool = False, timeout_s: float = 60) -> Any:
        """Wait for a state of a session, with `reason` also until it tells why."""
        deadline = time.monotonic() + timeout_s
        while (session := self.json("get", name))["state"] != state or (reason and not session["reason"]):
            assert time.monotonic() < deadline, session
            time.sleep(0.2)
        return session


@pytest.fixture(scope="module")
def admin(
    authority: Authority,
    image: str,
    engine: docker.DockerClient,
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[User]:
    """The administrator of a small site: one node with two simulated GPUs, the project team-a with 1 GPU."""
    folder = tmp_path_factory.mktemp("site")
    port = free_port()
    environment = api_environment(authority, new_database(postgresql_server), port)
    api = [sys.executable, "-m", "api"]
    forks.run([*api, "migrate"], environment, check=True)
    forks.run([*api, "create-admin", "--name", "admin"], environment, PASSWORD, check=True)
    with (folder / "api.log").open("wb") as log:
        server = forks.start([*api, "serve"], env=environment, stdout=log, stderr=log)
    agent = make_agent(authority, port, folder)
    try:
        user = User(folder / "config", f"https://127.0.0.1:{port}", authority.ca)
        _wait(lambda: _healthy(user), server, folder / "api.log")
        agent.start()
        assert user.try_log_in("admin").returncode == 0
        user("image", "create", "busybox:1", image)
        user("project", "create", "team-a", "--gpus", "1", "--no-over-quota")
        user("project", "set", "team-a")
        _wait(lambda: [node["state"] for node in user.json("node", "list")] == ["ready"], server, folder / "api.log")
        yield user
        for session in user.json("list"):
            user("delete", session["name"])
        _wait(lambda: user.json("list") == [], server, folder / "api.log")
    finally:
        agent.stop()
        server.terminate()
        server.wait(60)
        remove_containers(engine, ancestor=image)


@pytest.fixture
def running(admin: User) -> Iterator[str]:
    """The name of a session that runs until the test ends."""
    name = f"s-{time.monotonic_ns() % 10**9}"
    admin("submit", name, "-i", "busybox", "-g", "0.5", "--interactive", "--command", "sleep", "--args", "infinity")
    admin.until(name, "RUNNING")
    yield name
    admin("delete", name)
    admin.until(name, "TERMINATED")


def _healthy(user: User) -> bool:
    import ssl

    try:
        return httpx.get(f"{user.url}/api/v1/health", verify=ssl.create_default_context(cafile=user.ca)).is_success
    except httpx.TransportError:
        return False


def _wait(condition: Callable[[], bool], server: Fork, log: Path, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def test_config_is_private_and_holds_no_password(admin: User) -> None:
    path = admin.config / "penstock" / "config.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in path.read_text()


def test_three_sessions_for_two_places(admin: User) -> None:
    for name in ("first", "second", "third"):
        admin("submit", name, "-i", "busybox:1", "--fgpu", "1", "--command", "sleep", "--args", "infinity")
    admin.until("first", "RUNNING")
    admin.until("second", "RUNNING")
    waiting = admin.until("third", "PENDING", reason=True)
    assert "team-a" in waiting["reason"]
    lines = admin("list").splitlines()
    head = ["NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs"]
    assert lines[0].split() == [*head, "CREATED-BY-CLI", "SERVICE", "URL(S)"]
    assert {line.split()[0]: line.split()[1] for line in lines[1:4]} == {
        "first": "Running",
        "second": "Running",
        "third": "Pending",
    }
    assert lines[4] == f"third waits: {waiting['reason']}"
    admin("delete", "first")
    admin.until("third", "RUNNING")
    admin("delete", "second", "third")
    for name in ("first", "second", "third"):
        admin.until(name, "TERMINATED")


def test_log_of_a_session_that_ended(admin: User) -> None:
    admin("submit", "speaker", "-i", "busybox", "-g", "0.5", "--command", "sh -c", "--args", "seq 1 3; exit 4")
    session = admin.until("speaker", "FAILED")
    assert session["exit_code"] == 4
    assert admin("logs", "speaker") == "1\n2\n3\n"
    assert admin("logs", "speaker", "--tail", "1") == "3\n"
    assert re.search(r"^Exit code: +4$", admin("get", "speaker"), re.MULTILINE)


def test_followed_log_ends_with_the_session(admin: User) -> None:
    script = "echo first; sleep 1; echo last"
    admin("submit", "talker", "-i", "busybox", "-g", "0.5", "--command", "sh -c", "--args", script)
    assert admin("logs", "-f", "talker") == "first\nlast\n"
    admin.until("talker", "TERMINATED")


def test_shell_in_a_terminal(admin: User, running: str) -> None:
    shell = pexpect.spawn(
        str(PENSTOCK), ["bash", running], env=admin.environment, encoding="utf-8", timeout=60, dimensions=(31, 97)
    )
    shell.sendline("echo share=$PENSTOCK_GPU_SHARE; stty size")
    shell.expect("share=500")
    shell.expect("31 97")
    shell.setwinsize(40, 132)
    # it comes there on a way of its own
    shell.sendline('while [ "$(stty size)" = "31 97" ]; do sleep 0.1; done; stty size')
    shell.expect("40 132")
    shell.sendline("exit 7")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 7


def test_shell_with_piped_input(admin: User, running: str) -> None:
    answer = admin.run("bash", running, "-p", "team-a", stdin="echo share=$PENSTOCK_GPU_SHARE\nexit 5\n")
    assert answer.stdout == "share=500\n"
    assert answer.returncode == 5
    assert admin("bash", running, stdin="cat <<END\nat the end of the input\nEND\n") == "at the end of the input\n"


def test_shell_in_a_session_that_does_not_run_says_so(admin: User) -> None:
    answer = admin.run("bash", "nobody")
    assert answer.returncode == 6, "as with every command where there is no such session"
    assert answer.stderr.startswith("error: ")
    assert "nobody" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-g", "0"], ["--cpu: ", "without GPUs"]),
        (["-g", "-1"], ["-g: ", "not above 0"]),
        (["-g", "0.33"], ["-g: ", "finer than the granularity"]),
        (["-g", "half"], ["-g", "not a number"]),
        (["-g", "3"], ["-g: ", "2"]),
        (["--fgpu", "0.0001"], ["--fgpu"]),
        (["-g", "1", "-i", "no-such-image"], ["image", "busybox:1"]),
        (["-g", "1", "-p", "nobody"], ["project"]),
        ([], ["-g", "no share"]),
    ],
)
def test_bad_submission_changes_nothing_and_names_field_reason_and_hint(
    admin: User, arguments: list[str], words: list[str]
) -> None:
    before = admin.json("list", "--all")
    answer = admin.run("submit", "wrong", "-i", "busybox", "--command", "true", *arguments)
    assert answer.returncode != 0
    assert answer.stdout == ""
    assert all(word in answer.stderr for word in words), answer.stderr
    assert "Hint: " in answer.stderr
    assert admin.json("list", "--all") == before


def test_delete_of_several_names_goes_on_after_an_unknown_one(admin: User) -> None:
    for name in ("one", "two"):
        admin("submit", name, "-i", "busybox", "-g", "0.5", "--command", "sleep", "--args", "infinity")
    answer = admin.run("delete", "-p", "team-a", "one", "nobody", "two")
    assert answer.returncode == 6
    assert [line.split(":")[0] for line in answer.stdout.splitlines()] == ["one", "two"]
    assert "nobody" in answer.stderr
    for name in ("one", "two"):
        admin.until(name, "TERMINATED")


def test_member_sees_the_project_only_and_loses_the_login_with_the_key(admin: User, tmp_path: Path) -> None:
    admin("user", "create", "alice", "--password-stdin", stdin=f"{PASSWORD}\n")
    assert "alice" in admin("user", "list")
    admin("project", "update", "team-a", "--member", "alice")
    admin("project", "create", "team-b", "--gpus", "1")
    alice = User(tmp_path, admin.url, admin.ca)
    assert alice.try_log_in("alice").returncode == 0
    assert [project["name"] for project in alice.json("project", "list")] == ["team-a"]
    assert alice.run("user", "list").returncode == 8
    assert alice.run("project", "set", "team-b").returncode == 6
    kept = (tmp_path / "penstock" / "config.json").read_text()
    alice("logout")
    assert "not logged in" in alice.run("list").stderr
    (tmp_path / "penstock" / "config.json").write_text(kept)
    revoked = alice.run("list")
    assert revoked.returncode == 9
    assert "penstock login" in revoked.stderr
    admin("project", "delete", "team-b")
    admin("user", "password", "alice", "--password-stdin", stdin="0ther~Secret\n")
    assert (
        alice.run(
            "login", admin.url, "--user", "alice", "--ca", str(admin.ca), "--password-stdin", stdin=PASSWORD
        ).returncode
        == 9
    )
    admin("user", "delete", "alice")


def test_login_without_the_site_s_certificate_is_refused_with_the_hint(admin: User, tmp_path: Path) -> None:
    stranger = User(tmp_path, admin.url, admin.ca)
    answer = stranger.run("login", admin.url, "--user", "admin", "--password-stdin", stdin=PASSWORD)
    assert answer.returncode == 5
    assert "certificate is not trusted" in answer.stderr
    assert "--ca" in answer.stderr
    assert not (tmp_path / "penstock").exists()


def test_api_that_does_not_answer_is_named(tmp_path: Path, authority: Authority) -> None:
    url = f"https://127.0.0.1:{free_port()}"
    stranger = User(tmp_path, url, authority.ca)
    answer = stranger.run(
        "login", url, "--user", "admin", "--ca", str(authority.ca), "--password-stdin", stdin=PASSWORD
    )
    assert answer.returncode == 5
    assert answer.stderr == (
        f"error: {url}: nothing listens there. Hint: check the address, and whether the control API runs\n"
    )
