"""The main job as a user does it, through the `penstock` command alone; demo and end-to-end test share it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from appliance.site.deployment import new_password
from appliance.site.lab import BUNDLE_LABEL, LABEL
from common import files
from common.errors import ConflictError, UnauthenticatedError, UnavailableError

ROOT = Path(__file__).parents[2]
PENSTOCK = Path(sys.executable).with_name("penstock")
PROJECT = "team-a"
SESSIONS = ("first", "second", "third")
DEADLINE_S = 90.0
STEP_S = 0.2


class CommandError(RuntimeError):
    """A command of ours failed; `exit_code` says how."""

    def __init__(self, words: Sequence[str | Path], result: subprocess.CompletedProcess[str]) -> None:
        said = result.stderr.strip()
        super().__init__(f"penstock {' '.join(map(str, words))} exited {result.returncode}: {said}")
        self.exit_code = result.returncode


def slowness() -> float:
    """Return how many times as long as on an idle machine things take on this one now, by its load; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@dataclass
class Journey:
    """A site file, a bundle and a place for the command line's settings; remembers how long each phase took."""

    site: Path
    bundles: Path
    config_home: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    bundle: Path = field(init=False)

    def penstock(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Run the command, show what it says as it comes, and return its standard output."""
        result = self.try_penstock(*arguments, stdin=stdin)
        if result.returncode:
            raise CommandError(arguments, result)
        return result.stdout

    def try_penstock(self, *arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command and return what came of it."""
        return subprocess.run(
            [PENSTOCK, *arguments],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=ROOT,
            check=False,
        )

    def show_penstock(self, *arguments: str | Path) -> None:
        """Run a long command with its output going straight to the terminal."""
        print(f"$ penstock {' '.join(map(str, arguments))}", flush=True)
        subprocess.run([PENSTOCK, *arguments], stdin=subprocess.DEVNULL, env=self.environment, cwd=ROOT, check=True)

    def json(self, *arguments: str | Path) -> Any:
        """Return what the command prints with `-o json`."""
        return json.loads(self.penstock(*arguments, "-o", "json"))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every command: this one, with the settings of the command line kept apart if asked."""
        own = {"XDG_CONFIG_HOME": str(self.config_home)} if self.config_home else {}
        return {**os.environ, **own}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase and say when it begins and how long it took."""
        print(f"\n\033[1m== {name}\033[0m", flush=True)
        begin = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - begin
        print(f"   {name}: {self.seconds[name]:.1f} s", flush=True)

    def build(self) -> None:
        """Build the product's bundle; a second build fetches nothing."""
        with self.phase("build the bundle"):
            self.show_penstock("reservoir", "lock", "--if-changed", "manifest.yml")
            self.show_penstock("reservoir", "build", "manifest.yml", "--output", self.bundles)
        self.bundle = max(
            (path for path in self.bundles.glob("penstock-*") if (path / "bundle.json.sig").exists()),
            key=lambda path: path.stat().st_mtime,
        )
        with self.phase("verify the bundle"):
            self.show_penstock("reservoir", "verify", self.bundle)

    def up(self, *options: str) -> None:
        """Start the lab's nodes and install them from the bundle alone."""
        command: tuple[str | Path, ...] = ("lab", "up", "-f", self.site, "--bundle", self.bundle, *options)
        with self.phase("start the lab and deploy"):
            try:
                self.show_penstock(*command)
            except subprocess.CalledProcessError as error:
                if error.returncode != ConflictError.exit_code or self._is_of_another_checkout():
                    raise
                self.down()  # an earlier run's lab stands on another bundle
                self.show_penstock(*command)

    def _is_of_another_checkout(self) -> bool:
        """Return whether somebody works with this lab from a bundle that lies elsewhere, and is there still."""
        # not by the names of the site file, which may have other nodes by now
        own = ("--filter", f"label={LABEL}={self.lab['name']}", "--format", f'{{{{.Label "{BUNDLE_LABEL}"}}}}')
        marks = subprocess.run(
            ("docker", "ps", "--all", *own), capture_output=True, text=True, check=True
        ).stdout.split()
        bundles = [Path(mark.rpartition(":")[0]) for mark in marks]
        return any(bundle.is_dir() and not bundle.is_relative_to(ROOT) for bundle in bundles)

    def down(self) -> None:
        """Remove the lab."""
        self.show_penstock("lab", "down", "-f", self.site)

    @property
    def lab(self) -> dict[str, Any]:
        """What `penstock lab status` says."""
        status: dict[str, Any] = self.json("lab", "status", "-f", self.site)
        return status

    def in_node(self, node: str, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command inside a node of the lab, as someone at its keyboard would."""
        words = ["docker", "exec", "--interactive", self.containers[node], *command]
        return subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)

    @cached_property
    def containers(self) -> dict[str, str]:
        """The container of each node."""
        return {item["name"]: item["container"] for item in self.lab["nodes"]}

    @cached_property
    def reservoir(self) -> str:
        """The name of the reservoir node, from where a site is deployed."""
        return str(next(item["name"] for item in self.lab["nodes"] if "reservoir" in item["roles"]))

    @property
    def first_password(self) -> str:
        """The password that the deploy made for the first administrator, read on the reservoir node."""
        return self.in_node(self.reservoir, "cat", "/var/lib/penstock/site/admin-password").stdout.strip()

    @property
    def own_password(self) -> Path:
        """File with the password that the administrator of this lab has chosen; it goes with the lab."""
        return Path(self.lab["ca"]).with_name("admin-password")

    def login(self) -> None:
        """Log in as the first administrator; the first time with the deploy's password, which has to be replaced."""
        lab, file = self.lab, self.own_password
        words = ("login", lab["api"], "--user", "admin", "--ca", lab["ca"], "--password-stdin")
        with self.phase("log in"):
            if file.is_file():
                result = self.try_penstock(*words, stdin=file.read_text())
                if result.returncode == 0:
                    return
                if result.returncode != UnauthenticatedError.exit_code:
                    raise CommandError(words, result)
            files.write(file, new_password() + "\n", 0o600)
            self.penstock(*words, stdin=f"{self.first_password}\n{file.read_text()}")

    def project(self, quota: str = "1") -> None:
        """Make the project that may hold `quota` GPUs and never more, or set its quota where it exists."""
        with self.phase(f"project {PROJECT} with {quota} GPU"):
            names = [project["name"] for project in self.json("project", "list")]
            verb = "update" if PROJECT in names else "create"
            self.penstock("project", verb, PROJECT, "--gpus", quota, "--no-over-quota")
            self.penstock("project", "set", PROJECT)

    def clear(self) -> None:
        """Delete what an earlier run left in the project."""
        left = [session["id"] for session in self.json("list")]
        if left:
            self.penstock("delete", *left)
            self.until(lambda: not self.json("list"), "the sessions of an earlier run are gone")

    def submit(self, name: str, gpus: str = "0.5", *, image: str = "python:3.11") -> None:
        """Submit a session that sleeps until it is deleted."""
        self.penstock("submit", name, "-i", image, "-g", gpus, "--command", "sleep", "--args", "infinity")

    def states(self) -> dict[str, str]:
        """State of every live session of the project."""
        return {session["name"]: session["state"] for session in self.json("list")}

    def until(self, condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until a condition holds, on a busy machine longer; raises TimeoutError that names it.

        What cannot be asked now, because the API is away for a moment, does not hold yet.
        """
        begin = time.monotonic()
        while not self._holds(condition):
            waited = time.monotonic() - begin
            if waited > deadline_s * slowness():
                listed = self.try_penstock("list")
                raise TimeoutError(f"waited {waited:.0f} s until {what}: {listed.stdout or listed.stderr}")
            time.sleep(STEP_S)

    def until_states(self, wanted: Mapping[str, str], what: str) -> None:
        """Wait until these are the live sessions of the project; raises RuntimeError for one that failed."""

        def reached() -> bool:
            sessions = self.json("list")
            for session in sessions:
                if session["state"] == "FAILED":
                    raise RuntimeError(f"session {session['name']} failed before {what}: {session['reason']}")
            return {session["name"]: session["state"] for session in sessions} == wanted

        self.until(reached, what)

    @staticmethod
    def _holds(condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except CommandError as error:
            if error.exit_code != UnavailableError.exit_code:
                raise
            return False

    def three_for_two(self) -> str:
        """Row L7: three sessions of one fGPU where the project may hold two; returns why the third waits."""
        with self.phase("three sessions for two places"):
            for name in SESSIONS:
                self.submit(name)
            wanted = {"first": "RUNNING", "second": "RUNNING", "third": "PENDING"}
            self.until_states(wanted, "two sessions run and the third waits")
            self.until(lambda: bool(self.json("get", "third")["reason"]), "the third says why it waits")
            print(self.penstock("list"))
            reason = str(self.json("get", "third")["reason"])
            print(f"   third waits: {reason}")
        return reason

    def third_runs(self) -> None:
        """Delete the first session; the third takes its place."""
        with self.phase("delete one, the third runs"):
            self.penstock("delete", "first")
            self.until_states({"second": "RUNNING", "third": "RUNNING"}, "the third session runs")
            print(self.penstock("list"))
