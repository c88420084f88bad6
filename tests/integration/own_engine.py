"""A Docker Engine of a test worker's own, in a network namespace of its own: agents of two workers do not meet.

An agent takes every container of a session for its own, bridges and VXLAN ports are those of a whole machine: whoever
shares an engine has to take turns.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import docker
import pytest

START_S = 60
STOP_S = 60
THIS_THREAD = Path("/proc/thread-self/ns/net")


class OwnEngine:
    """An engine's folder, with its `docker.sock`, and the name of the network namespace that it runs in."""

    def __init__(self) -> None:
        self.namespace = f"penstock-{uuid.uuid4().hex[:8]}"
        # short: the names of an engine's sockets have 104 characters
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-e-"))
        self.daemon: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let this thread, and what it starts, be in the namespace and speak to the engine."""
        with _in_namespace(Path("/run/netns", self.namespace)), pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", self.address)
            yield

    def run_daemon(self) -> None:
        """Start the daemon, and wait until it answers; who calls is in its namespace."""
        self.daemon = _start(self)
        wait(self, self.daemon)

    def stop(self) -> None:
        """Stop the daemon as systemd does; its containers end with it."""
        assert self.daemon is not None
        self.daemon.terminate()
        self.daemon.wait(STOP_S)

    def kill(self) -> None:
        """Let the daemon die as it never wants to."""
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait(STOP_S)
        # it mounts its folder on itself, and takes that away only where it ends in order
        subprocess.run(["umount", "--lazy", self.folder / "data"], check=True)


@contextmanager
def own_engine() -> Iterator[OwnEngine]:
    """Run an engine; nothing of it is left afterwards."""
    engine = OwnEngine()
    subprocess.run(["ip", "netns", "add", engine.namespace], check=True)
    try:
        try:
            with engine.entered():
                subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
                engine.run_daemon()
            yield engine
            _empty(engine)
        finally:
            if engine.daemon:
                engine.stop()
    finally:
        subprocess.run(["ip", "netns", "del", engine.namespace], check=True)
        shutil.rmtree(engine.folder, ignore_errors=True)


def words_of(engine: OwnEngine) -> list[str]:
    """Return the command line of an engine."""
    options = {
        "--host": engine.address,
        "--data-root": engine.folder / "data",
        "--exec-root": engine.folder / "exec",
        "--pidfile": engine.folder / "pid",
        # where systemd runs one containerd for all engines of a machine
        "--containerd-namespace": engine.namespace,
        "--containerd-plugins-namespace": f"{engine.namespace}-plugins",
    }
    return ["dockerd", *(f"{option}={value}" for option, value in options.items())]


def _start(engine: OwnEngine) -> subprocess.Popen[bytes]:
    with (engine.folder / "log").open("wb") as log:
        # it does not outlive a worker that was killed
        return subprocess.Popen(["setpriv", "--pdeathsig=TERM", *words_of(engine)], stdout=log, stderr=log)


def wait(engine: OwnEngine, daemon: subprocess.Popen[bytes]) -> None:
    """Wait until an engine answers."""
    deadline = time.monotonic() + START_S
    while not _answers(engine):
        log = (engine.folder / "log").read_text()
        assert daemon.poll() is None, log
        assert time.monotonic() < deadline, log
        time.sleep(0.1)


def _answers(engine: OwnEngine) -> bool:
    try:
        client = docker.DockerClient(base_url=engine.address)
    except docker.errors.DockerException:
        return False
    client.close()
    return True


def remove_containers(client: docker.DockerClient, **filters: str) -> None:
    """Remove containers until none is left: the engine may be about to remove one by itself, which is gone then."""
    deadline = time.monotonic() + STOP_S
    while found := client.containers.list(all=True, filters={**filters}, ignore_removed=True):
        assert time.monotonic() < deadline, found
        for container in found:
            try:
                container.remove(force=True)
            except docker.errors.APIError as error:
                if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    raise


def _empty(engine: OwnEngine) -> None:
    client = docker.DockerClient(base_url=engine.address)
    remove_containers(client)
    client.close()


@contextmanager
def _in_namespace(namespace: Path) -> Iterator[None]:
    with THIS_THREAD.open("rb") as home, namespace.open("rb") as other:
        _enter(other.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


def _enter(namespace: int) -> None:
    """`os.setns` is there from Python 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")
