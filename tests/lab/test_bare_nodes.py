"""The lab's nodes before anything is installed on them: systemd, a network with no way out, and nothing else."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.lab.conftest import Sites
from tests.lab.journey import slowness
from tests.lab.outside import CONNECT
from tests.lab.site import LabSite, docker

NODES = ("master1", "worker1", "worker2", "storage1")
ADDRESSES = dict(zip(NODES, ("10.71.9.10", "10.71.9.11", "10.71.9.12", "10.71.9.13"), strict=True))
RELEASES = {"master1": "12", "worker1": "12", "worker2": "13", "storage1": "13"}


@pytest.fixture(scope="module")
def lab(bare: Sites) -> LabSite:
    return bare["users"]


def said(lab: LabSite, node: str, *command: str) -> str:
    """Return what a command in a node prints, which has to end well."""
    done = lab.in_node(node, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("node", NODES)
def test_a_node_has_systemd_and_no_way_out(lab: LabSite, node: str) -> None:
    assert said(lab, node, "cat", "/proc/1/comm").strip() == "systemd"
    assert said(lab, node, "cat", "/etc/debian_version").startswith(f"{RELEASES[node]}.")
    assert "default" not in said(lab, node, "ip", "route")
    reason, seconds = said(lab, node, "python3", "-c", CONNECT).split()
    assert (reason, float(seconds) < 1) == ("ENETUNREACH", True)


def test_outside_names_fail_soon(lab: LabSite) -> None:
    begin = time.monotonic()
    assert lab.in_node("worker1", "getent", "hosts", "www.example.com").returncode == 2
    assert time.monotonic() - begin < 5 * slowness()


def test_a_node_is_bare(lab: LabSite) -> None:
    assert said(lab, "worker1", "apt-get", "indextargets", "--format", "$(SITE)").split() == []
    assert lab.in_node("worker1", "sh", "-c", "command -v docker pip3 penstock").returncode == 127


def test_the_reservoir_node_logs_in_everywhere_with_host_keys_checked(lab: LabSite) -> None:
    strict = ("-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes")
    known = ("-o", "UserKnownHostsFile=/var/lib/penstock/site/known_hosts")
    for node in NODES[1:]:
        assert said(lab, "master1", "ssh", *strict, node, "hostname").strip() == node
        assert said(lab, "master1", "ssh", *strict, *known, ADDRESSES[node], "hostname").strip() == node


def test_every_node_has_its_own_host_key(lab: LabSite) -> None:
    keys = {said(lab, node, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[1] for node in NODES}
    assert len(keys) == len(NODES)


def test_the_bundle_lies_on_the_reservoir_node_as_a_disk_would(lab: LabSite) -> None:
    assert json.loads(said(lab, "master1", "cat", "/media/penstock/bundle.json"))["name"] == "penstock"
    assert lab.in_node("master1", "touch", "/media/penstock/x").returncode == 1
    assert lab.in_node("worker1", "test", "-e", "/media/penstock").returncode == 1


def test_external_storage_is_one_folder_for_master_and_workers(lab: LabSite) -> None:
    said(lab, "master1", "sh", "-c", "echo shared > /srv/shared/file")
    try:
        assert said(lab, "worker1", "cat", "/srv/shared/file") == "shared\n"
        assert lab.in_node("storage1", "test", "-e", "/srv/shared").returncode == 1
    finally:
        said(lab, "master1", "rm", "/srv/shared/file")


def test_what_docker_and_nfs_store_is_on_no_overlay(lab: LabSite) -> None:
    for node, path in (("worker1", "/var/lib/docker"), ("storage1", "/srv/archive")):
        assert said(lab, node, "stat", "--file-system", "--format", "%T", path).strip() != "overlayfs"


def test_a_node_cannot_set_the_clock_of_this_machine(lab: LabSite) -> None:
    # should this succeed, it does no harm: it sets the time that it is
    tried = lab.in_node("worker1", "sh", "-c", 'date --set "@$(date +%s)"')
    assert tried.returncode == 1
    assert "Operation not permitted" in tried.stderr


def up(lab: LabSite, site: Path) -> str:
    """Start what is not up of a site's nodes; raises RuntimeError with what the command says."""
    return lab.penstock("lab", "up", "-f", site, "--bundle", lab.bundle, "--no-deploy")


def test_a_second_up_changes_nothing(lab: LabSite) -> None:
    before = lab.objects()
    keys = said(lab, "master1", "cat", "/root/.ssh/known_hosts")
    assert "node worker1: is up already" in up(lab, lab.site)
    assert lab.objects() == before
    assert said(lab, "master1", "cat", "/root/.ssh/known_hosts") == keys
    assert len(said(lab, "worker1", "cat", "/root/.ssh/authorized_keys").splitlines()) == 1


def test_a_node_that_stopped_comes_back_closed(lab: LabSite) -> None:
    docker("kill", lab.containers["worker1"])
    assert lab.node_states()["worker1"] == "exited"
    assert "node worker1: started again" in up(lab, lab.site)
    assert lab.node_states()["worker1"] == "running"
    assert "default" not in said(lab, "worker1", "ip", "route")


def test_status_names_addresses_and_services(lab: LabSite) -> None:
    found = lab.lab
    assert {node["name"]: node["address"] for node in found["nodes"]} == ADDRESSES
    assert (found["console"], found["api"]) == ("https://10.71.9.10", "https://10.71.9.10:56789")


def refused(lab: LabSite, site: Path) -> str:
    """Return what is said of a site whose nodes are not started because something is in the way."""
    tried = lab.try_penstock("lab", "up", "-f", site, "--bundle", lab.bundle, "--no-deploy")
    assert tried.returncode == 7, tried.stdout + tried.stderr
    return tried.stderr


def test_a_second_lab_on_the_same_network_is_refused_and_leaves_nothing(lab: LabSite, tmp_path: Path) -> None:
    other = LabSite(tmp_path / "site.yml", bundles=lab.bundles)
    other.site.write_text(re.sub(r"^name: tests$", "name: tests-b", lab.site.read_text(), flags=re.MULTILINE))
    assert "the Docker network penstock-tests uses 10.71.9.0/24 already" in refused(lab, other.site)
    assert other.objects() == {"containers": [], "networks": [], "volumes": []}


def test_a_lab_of_a_changed_site_file_is_refused(lab: LabSite, tmp_path: Path) -> None:
    changed = tmp_path / "site.yml"
    changed.write_text(lab.site.read_text().replace("10.71.9.11", "10.71.9.21"))
    assert "the lab has a node worker1 at 10.71.9.11" in refused(lab, changed)
