"""A machine that can lose its power: an engine and what runs there, in a PID namespace that ends as a whole.

The kernel kills all processes of a namespace with its first one, and the next namespace has another first process: to
all that runs inside the machine has restarted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import docker

from tests.integration.own_engine import OwnEngine, remove_containers, wait, words_of
from tests.tree import ROOT

STOP_S = 60


class Machine(OwnEngine):
    """A machine with an engine; whoever uses it has `entered` it."""

    def __init__(self) -> None:
        super().__init__()
        self.power: subprocess.Popen[bytes] | None = None
        self.engine: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Give it power, and start its engine."""
        words = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "setpriv"]
        # a shell that waits for ever, and for what others leave behind; when it speaks it has its own /proc
        waits = [*words, "--pdeathsig=KILL", "sh", "-c", "echo; exec >/dev/null; while sleep 1; do :; done"]
        self.power = subprocess.Popen(waits, stdout=subprocess.PIPE)
        assert self.power.stdout is not None
        with self.power.stdout as said:
            assert said.readline() == b"\n"
        self.start_engine()

    def start_engine(self, *options: str) -> None:
        """Start the engine, and the containerd that it has for itself wherever it finds none of systemd's."""
        with (self.folder / "log").open("ab") as log:
            self.engine = self.start([*words_of(self), *options], {}, stdout=log, stderr=log)
        wait(self, self.engine)

    def stop_engine(self) -> None:
        """Stop the engine as systemd does."""
        [pid] = (self.folder / "pid").read_text().split()
        self.start(["kill", pid], {}).wait(STOP_S)
        assert self.engine is not None
        self.engine.wait(STOP_S)

    def cut_power(self) -> None:
        """End all that runs on it at once."""
        assert self.power is not None
        subprocess.run(["kill", "-KILL", str(self._first())], check=True)
        self.power.wait(STOP_S)
        # what lies in /run goes with it
        (self.folder / "pid").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "exec")

    def start(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        stdout: IO[Any] | None = None,
        stderr: IO[Any] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program on it."""
        inside = ["nsenter", "--target", str(self._first()), "--pid", "--mount", *words]
        # it begins in no folder of ours
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **env}
        return subprocess.Popen(inside, env=environment, stdout=stdout, stderr=stderr)

    def _first(self) -> int:
        """Return the process that all others of the machine end with."""
        assert self.power is not None
        while True:
            children = subprocess.run(["pgrep", "--parent", str(self.power.pid)], capture_output=True, check=False)
            if children.stdout:
                return int(children.stdout.split()[0])


@contextmanager
def running_machine() -> Iterator[Machine]:
    """Run a machine, entered; nothing of it is left afterwards."""
    machine = Machine()
    subprocess.run(["ip", "netns", "add", machine.namespace], check=True)
    try:
        with machine.entered():
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            machine.boot()
            try:
                yield machine
                _empty(machine)
            finally:
                machine.cut_power()
    finally:
        subprocess.run(["ip", "netns", "del", machine.namespace], check=True)
        shutil.rmtree(machine.folder, ignore_errors=True)


def _empty(machine: Machine) -> None:
    client = docker.DockerClient(base_url=machine.address)
    remove_containers(client)
    client.close()
