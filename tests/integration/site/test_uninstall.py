"""The end of a site on a real node: systemd, users and packet rules of Debian, and the product's own role."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.site import inventory, playbook, uninstall
from appliance.site.site_file import load
from common.yaml_document import parse
from tests.integration.reservoir.conftest import (  # noqa: F401
    Machine,
    docker,
    listed,
    node_image,
    node_images,
    product_bundle,
)

SITE = """\
name: north
nodes: [{name: near, address: 192.0.2.7, roles: [reservoir, master, worker], agent_port: 6001}]
"""
SYSTEMD = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cap-drop", "SYS_TIME"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec"),
    *("--cgroupns=host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw"),
)
# What roles bring, of each kind that a node without the reservoir's packages can have.
INSTALLED = """
set -e
unit() {
  printf '[Service]\\nExecStart=sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' > "/etc/systemd/system/$1"
}
unit penstock-agent.service
unit penstock-log-store@.service
unit nginx.service
systemctl daemon-reload
systemctl enable --now penstock-agent.service penstock-log-store@w1.service nginx.service
useradd --system --no-create-home penstock
mkdir -p /etc/penstock/pki /opt/penstock/agent /var/lib/penstock/kept/etc /var/lib/penstock/site /srv/own
echo key > /etc/penstock/pki/node.key
echo mine > /etc/penstock/api.local.env
echo their > /var/lib/penstock/kept/etc/pip.conf
echo ours > /etc/pip.conf
echo '{"/etc/pip.conf": "kept", "/etc/docker/daemon.json": "absent"}' > /var/lib/penstock/kept/record.json
printf '# BEGIN penstock\\n192.0.2.7 near\\n# END penstock\\n' >> /etc/hosts
"""
LEFT = "find / -xdev \\( -name proc -o -name sys -o -name run \\) -prune -o -name '*penstock*' -print | sort"


@pytest.fixture(scope="module")
def node(node_image: str) -> Iterator[Machine]:  # noqa: F811
    identity = docker("run", "--detach", "--name", f"penstock-test-{uuid.uuid4().hex[:8]}", *SYSTEMD, node_image)
    try:
        machine = Machine(identity)
        until = time.monotonic() + 60
        while machine.run("systemctl is-system-running || true").strip() not in ("running", "degraded"):
            assert time.monotonic() < until
            time.sleep(0.5)
        yield machine
    finally:
        docker("rm", "--force", "--volumes", identity, check=False)


def end(node: Machine, state: Path, step: str, *, check: bool = False) -> list[str]:
    """Run one step as the command does, by Docker in place of SSH."""
    hosts = inventory.build(load(parse(SITE, "site.yml")), version="1", state=str(state))
    hosts["all"]["vars"]["site_end"] = {"step": step, "purge": False}
    hosts["all"]["hosts"]["near"] |= {
        "ansible_connection": "community.docker.docker",
        "ansible_host": node.identity,
    }
    result = playbook.run("uninstall", hosts, state=state, listen=lambda _: None, publish=[uninstall.DONE], check=check)
    result.require_success()
    told: list[str] = result.published["near"][uninstall.DONE]
    return told


def test_nothing_of_ours_runs_or_is_left_but_data(node: Machine, tmp_path: Path) -> None:
    node.run(INSTALLED)
    before = node.run(LEFT)
    told = [*end(node, tmp_path, "stop", check=True), *end(node, tmp_path, "remove", check=True)]
    assert "stop penstock-agent.service, penstock-log-store@w1.service" in told
    assert node.run(LEFT) == before
    assert node.run("systemctl is-active penstock-agent nginx") == "active\nactive\n"

    assert [*end(node, tmp_path, "stop"), *end(node, tmp_path, "remove")] == told
    assert node.run("systemctl list-units --all --plain --no-legend 'penstock*'") == ""
    assert node.run("systemctl is-active nginx || systemctl is-enabled nginx || true").split() == [
        "inactive",
        "disabled",
    ]
    assert node.run("getent passwd penstock || getent group penstock || true") == ""
    assert node.run(LEFT).split() == ["/etc/penstock", "/var/lib/penstock"]
    assert node.run("ls /etc/penstock /var/lib/penstock").split() == [
        *("/etc/penstock:", "api.local.env"),
        *("/var/lib/penstock:", "site"),
    ]
    assert node.run("cat /etc/pip.conf; grep near /etc/hosts || true") == "their\n"
    assert [*end(node, tmp_path, "stop"), *end(node, tmp_path, "remove")] == []
