"""Shared storage of a node that boots before its server: the units under systemd, with a server that is played."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

from tests.integration.reservoir.conftest import Machine, docker

UNITS = Path(__file__).parents[3] / "roles/storage_client"
NAME = r"mnt-my\x2dhome"
SERVER = """#!/bin/sh
echo "$@" >> /var/attempts
[ -e /var/server ] || { echo "mount.nfs4: Connection refused" >&2; exit 32; }
exec /usr/bin/mount -i -t tmpfs "$1" "$2"
"""
AGENT = """[Unit]
After=remote-fs.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c "wc -l < /var/attempts > /var/agent"
[Install]
WantedBy=multi-user.target
"""
SYSTEMD = (
    *("--network", "none", "--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cap-drop", "SYS_TIME"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *(
        "--tmpfs",
        "/run:exec",
        "--tmpfs",
        "/tmp:exec",
        "--cgroupns=host",
        "--volume",
        "/sys/fs/cgroup:/sys/fs/cgroup:rw",
    ),
)


@pytest.fixture
def node(node_image: str) -> Iterator[Machine]:
    machine = Machine(docker("run", "--detach", *SYSTEMD, node_image, "/sbin/init"))
    yield machine
    docker("rm", "--force", "--volumes", machine.identity, check=False)


def write(node: Machine, path: str, text: str) -> None:
    command = ["docker", "exec", "--interactive", node.identity, "sh", "-c", f"cat > '{path}'"]
    subprocess.run(command, input=text, text=True, check=True)


def booted(node: Machine) -> None:
    until(node, "systemctl is-active multi-user.target")


def until(node: Machine, script: str) -> None:
    """Wait until a script ends well; no reader of this test waits longer than a minute."""
    for _ in range(120):
        command = ["docker", "exec", node.identity, "sh", "-c", script]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.5)
    raise TimeoutError(script)


def test_a_mount_that_fails_at_boot_is_tried_again_until_it_is_there(node: Machine) -> None:
    booted(node)
    mount = jinja2.Template((UNITS / "templates/etc/systemd/system/export.mount.j2").read_text())
    folder = "/etc/systemd/system"
    write(node, f"{folder}/{NAME}.mount", mount.render(item={"source": "storage1:/srv/home", "path": "/mnt/my-home"}))
    again = (UNITS / "files/etc/systemd/system/penstock-mount@.service").read_text()
    write(node, f"{folder}/penstock-mount@.service", again.replace("RestartSec=15", "RestartSec=2"))
    write(node, f"{folder}/agent.service", AGENT)
    write(node, "/sbin/mount.nfs4", SERVER)
    node.run("chmod 755 /sbin/mount.nfs4; systemctl daemon-reload")
    node.run(f"systemctl enable '{NAME}.mount' 'penstock-mount@{NAME}.service' agent.service")
    docker("restart", node.identity)
    # the attempt of the boot comes before the agent, which it does not hold up
    until(node, "test -s /var/agent")
    assert int(node.run("cat /var/agent")) >= 1
    until(node, 'test "$(wc -l < /var/attempts)" -ge 4')
    node.run("mountpoint /mnt/my-home", code=32)
    node.run("touch /var/server")
    until(node, "mountpoint /mnt/my-home")
    until(node, f"systemctl is-active 'penstock-mount@{NAME}.service'")
    attempts = node.run("cat /var/attempts")
    assert "nosuid,nodev" in attempts
    time.sleep(3)
    assert node.run("cat /var/attempts") == attempts, "what is mounted is left alone"
