"""The lab's nodes on this machine's Docker: systemd, a network with no way out, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.reservoir.conftest import product_bundle  # noqa: F401 - a fixture

PENSTOCK = Path(sys.executable).with_name("penstock")
SITE = """\
name: {name}
nodes:
  - {{name: m1, address: 10.71.251.10, roles: [reservoir, master]}}
  - {{name: w1, address: 10.71.251.11, roles: [worker], agent_port: 6001}}
  - {{name: s1, address: 10.71.251.12, roles: [storage]}}
storage:
  - {{kind: external, name: shared, path: /srv/shared}}
  - {{kind: nfs, name: archive, path: /srv/archive, clients: []}}
"""
CONNECT = """
import errno, socket, time
begin = time.monotonic()
try:
    socket.create_connection(("192.0.2.1", 443), 5)
except OSError as error:
    print(errno.errorcode[error.errno], time.monotonic() - begin)
"""


def call(*words: str | Path, code: int = 0) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


@dataclass(frozen=True)
class Lab:
    """A lab that is up without a deploy."""

    name: str
    file: Path
    bundle: Path

    def up(self) -> str:
        return call(PENSTOCK, "lab", "up", "-f", self.file, "--bundle", self.bundle, "--no-deploy")

    def run(self, node: str, *command: str) -> str:
        return call("docker", "exec", f"penstock-{self.name}-{node}", *command)

    def objects(self) -> dict[str, list[str]]:
        """Everything that Docker has of this lab, by label."""
        mine = ("--filter", f"label=io.penstock.lab={self.name}", "--quiet")
        return {
            "containers": sorted(call("docker", "ps", "--all", *mine).split()),
            "networks": sorted(call("docker", "network", "ls", *mine).split()),
            "volumes": sorted(call("docker", "volume", "ls", *mine).split()),
        }


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, product_bundle: Path) -> Iterator[Lab]:  # noqa: F811
    name = f"it-{uuid.uuid4().hex[:6]}"
    file = tmp_path_factory.mktemp("lab") / "site.yml"
    file.write_text(SITE.format(name=name))
    lab = Lab(name, file, product_bundle)
    try:
        lab.up()
        yield lab
    finally:
        call(PENSTOCK, "lab", "down", "-f", file)


NODES = ("m1", "w1", "s1")


@pytest.mark.parametrize("node", NODES)
def test_a_node_has_systemd_and_no_way_out(lab: Lab, node: str) -> None:
    assert lab.run(node, "cat", "/proc/1/comm").strip() == "systemd"
    assert "default" not in lab.run(node, "ip", "route")
    reason, seconds = lab.run(node, "python3", "-c", CONNECT).split()
    assert (reason, float(seconds) < 1) == ("ENETUNREACH", True)


def test_outside_names_fail_soon(lab: Lab) -> None:
    begin = time.monotonic()
    call("docker", "exec", f"penstock-{lab.name}-w1", "getent", "hosts", "www.example.com", code=2)
    assert time.monotonic() - begin < 5


def test_a_node_is_bare(lab: Lab) -> None:
    assert lab.run("w1", "apt-get", "indextargets", "--format", "$(SITE)").split() == []
    call("docker", "exec", f"penstock-{lab.name}-w1", "sh", "-c", "command -v docker pip3 penstock", code=127)


def test_the_reservoir_node_logs_in_everywhere_with_host_keys_checked(lab: Lab) -> None:
    strict = ("-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes")
    for node, address in (("w1", "10.71.251.11"), ("s1", "10.71.251.12")):
        assert lab.run("m1", "ssh", *strict, node, "hostname").strip() == node
        known = ("-o", "UserKnownHostsFile=/var/lib/penstock/site/known_hosts")
        assert lab.run("m1", "ssh", *strict, *known, address, "hostname").strip() == node


def test_every_node_has_its_own_host_key(lab: Lab) -> None:
    keys = {lab.run(node, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[1] for node in NODES}
    assert len(keys) == len(NODES)


def test_the_bundle_lies_on_the_reservoir_node_as_a_disk_would(lab: Lab) -> None:
    assert json.loads(lab.run("m1", "cat", "/media/penstock/bundle.json"))["name"] == "penstock"
    call("docker", "exec", f"penstock-{lab.name}-m1", "touch", "/media/penstock/x", code=1)
    call("docker", "exec", f"penstock-{lab.name}-w1", "test", "-e", "/media/penstock", code=1)


def test_external_storage_is_one_folder_for_master_and_workers(lab: Lab) -> None:
    lab.run("m1", "sh", "-c", "echo shared > /srv/shared/file")
    assert lab.run("w1", "cat", "/srv/shared/file") == "shared\n"
    call("docker", "exec", f"penstock-{lab.name}-s1", "test", "-e", "/srv/shared", code=1)


def test_what_docker_and_nfs_store_is_on_no_overlay(lab: Lab) -> None:
    for node, path in (("w1", "/var/lib/docker"), ("s1", "/srv/archive")):
        assert lab.run(node, "stat", "--file-system", "--format", "%T", path).strip() != "overlayfs"


def test_a_node_cannot_set_the_clock_of_this_machine(lab: Lab) -> None:
    # should this succeed, it does no harm: it sets the time that it is
    script = 'date --set "@$(date +%s)"'
    said = call("docker", "exec", f"penstock-{lab.name}-w1", "sh", "-c", script, code=1)
    assert "Operation not permitted" in said


def test_a_second_up_changes_nothing(lab: Lab) -> None:
    before = lab.objects()
    keys = lab.run("m1", "cat", "/root/.ssh/known_hosts")
    assert "node w1: is up already" in lab.up()
    assert lab.objects() == before
    assert lab.run("m1", "cat", "/root/.ssh/known_hosts") == keys
    assert len(lab.run("w1", "cat", "/root/.ssh/authorized_keys").splitlines()) == 1


def test_a_node_that_stopped_comes_back_closed(lab: Lab) -> None:
    call("docker", "kill", f"penstock-{lab.name}-w1")
    assert states(lab)["w1"] == "exited"
    assert "node w1: started again" in lab.up()
    assert states(lab)["w1"] == "running"
    assert "default" not in lab.run("w1", "ip", "route")


def test_status_names_addresses_and_services(lab: Lab) -> None:
    found = status(lab)
    assert [(node["name"], node["address"]) for node in found["nodes"]] == [
        ("m1", "10.71.251.10"),
        ("w1", "10.71.251.11"),
        ("s1", "10.71.251.12"),
    ]
    assert (found["console"], found["api"]) == ("https://10.71.251.10", "https://10.71.251.10:56789")


def test_a_second_lab_on_the_same_network_is_refused_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    other = Lab(f"{lab.name}-b", tmp_path / "site.yml", lab.bundle)
    other.file.write_text(SITE.format(name=other.name))
    said = call(PENSTOCK, "lab", "up", "-f", other.file, "--bundle", lab.bundle, "--no-deploy", code=7)
    assert f"the Docker network penstock-{lab.name} uses 10.71.251.0/24 already" in said
    assert other.objects() == {"containers": [], "networks": [], "volumes": []}


def test_a_lab_of_a_changed_site_file_is_refused(lab: Lab, tmp_path: Path) -> None:
    changed = tmp_path / "site.yml"
    changed.write_text(lab.file.read_text().replace("10.71.251.11", "10.71.251.21"))
    said = call(PENSTOCK, "lab", "up", "-f", changed, "--bundle", lab.bundle, "--no-deploy", code=7)
    assert "the lab has a node w1 at 10.71.251.11" in said


def test_down_removes_all_of_the_lab_and_nothing_else(lab: Lab) -> None:
    bystander = f"penstock-{lab.name}-bystander"
    call("docker", "volume", "create", bystander)
    try:
        assert all(lab.objects().values())
        call(PENSTOCK, "lab", "down", "-f", lab.file)
        assert lab.objects() == {"containers": [], "networks": [], "volumes": []}
        assert bystander in call("docker", "volume", "ls", "--quiet").split()
        assert set(states(lab).values()) == {"absent"}
    finally:
        call("docker", "volume", "rm", bystander)


def status(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(PENSTOCK, "lab", "status", "-f", lab.file, "-o", "json"))
    return found


def states(lab: Lab) -> dict[str, str]:
    return {node["name"]: node["state"] for node in status(lab)["nodes"]}
