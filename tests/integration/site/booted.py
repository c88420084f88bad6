"""A machine with systemd, in a container of the product's image for nodes, on a network with no way out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.integration.reservoir.conftest import Machine, docker

BOOT_S = 60
_OPTIONS = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cap-drop", "SYS_TIME"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec"),
    *("--cgroupns=host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw"),
)


@contextmanager
def booted(image: str, options: Sequence[str]) -> Iterator[Machine]:
    """Give a machine when all of its services have started; `options` are those of `docker run`."""
    network = docker("network", "create", "--internal", f"penstock-test-{uuid.uuid4().hex[:8]}")
    identity = docker("run", "--detach", *_OPTIONS, "--network", network, *options, image, "/sbin/init")
    machine, deadline = Machine(identity), time.monotonic() + BOOT_S
    try:
        while "running" not in machine.run("systemctl is-system-running | sed s,degraded,running,"):
            assert time.monotonic() < deadline, machine.run("systemctl list-jobs")
            time.sleep(0.2)
        yield machine
    finally:
        docker("rm", "--force", "--volumes", identity, check=False)
        docker("network", "rm", network, check=False)
