"""The role of Slurm, run by Ansible on two machines with systemd: a controller, and a node that takes all from it."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from appliance.site import inventory, playbook, settings
from appliance.site.playbook import Result
from appliance.site.site_file import load
from common.yaml_document import parse
from tests.integration.reservoir.conftest import Machine, docker
from tests.tree import ROOT

SITE = """\
name: north
engine: slurm
nodes:
  - {{name: m1, address: {m1}, roles: [reservoir, master]}}
  - name: w1
    address: {w1}
    roles: [worker, slurm]
    agent_port: 6001
    simulated_gpus: {{count: 4}}
    slurm: {{cores: 16, memory_mib: 64000}}
"""
PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd", "python3-apt")
START_S = 30


@dataclass(frozen=True)
class Node(Machine):
    """A machine with systemd."""

    address: str

    def wait(self, script: str, what: str) -> None:
        deadline = time.monotonic() + START_S
        while what not in (said := self.run(f"{script} || true")):
            assert time.monotonic() < deadline, f"{script}: {said}"
            time.sleep(0.3)


def _debs(image: str, folder: Path) -> Path:
    """Return the folder with the packages of the role, and those that a node of this image lacks for them."""
    (folder / "debs/partial").mkdir(parents=True)
    (folder / "status").write_text(docker("run", "--rm", image, "cat", "/var/lib/dpkg/status"))
    options = [f"Dir::State::status={folder}/status", f"Dir::Cache::archives={folder}/debs", "APT::Sandbox::User=root"]
    words = ["apt-get", *(f"--option={each}" for each in options), "install", "--download-only", "--yes"]
    words += ["--option=Debug::NoLocking=1", "--no-install-recommends", *PACKAGES]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        # a machine without lists of packages
        subprocess.run(["apt-get", "update", "--quiet"], check=True, capture_output=True)
        subprocess.run(words, check=True, capture_output=True)
    return folder / "debs"


def _prepare(node: Node) -> None:
    node.wait("systemctl is-system-running | sed s,degraded,running,", "running")
    # nothing starts before the role has configured it
    node.run("printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d")
    node.run("echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/test && dpkg --install /debs/*.deb")


@pytest.fixture(scope="module")
def nodes(node_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    debs = _debs(node_image, tmp_path_factory.mktemp("slurm"))
    network = docker("network", "create", "--internal", f"penstock-test-{uuid.uuid4().hex[:8]}")
    found: dict[str, Node] = {}
    # as a lab starts its nodes
    options = ["--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cap-drop", "SYS_TIME"]
    options += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
    options += ["--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec", "--cgroupns=host"]
    options += ["--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw", "--volume", f"{debs}:/debs:ro"]
    try:
        for name in ("m1", "w1"):
            words = ["--network", network, "--hostname", name, "--network-alias", name]
            identity = docker("run", "--detach", *words, *options, node_image, "/sbin/init")
            shown = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", identity)
            found[name] = Node(identity, shown)
        with ThreadPoolExecutor() as pool:
            list(pool.map(_prepare, found.values()))
        yield found
    finally:
        for node in found.values():
            docker("rm", "--force", "--volumes", node.identity, check=False)
        docker("network", "rm", network, check=False)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The controller's state; its program has a playbook that runs the role alone."""
    state = tmp_path_factory.mktemp("state")
    (state / "munge-key").write_text(f"{'0123456789abcdef' * 8}\n")
    root = state / "ansible"
    for folder in ("playbooks", "inventory/group_vars/all"):
        (root / folder).mkdir(parents=True)
    (root / "roles").symlink_to(ROOT / "roles")
    for name in ("cluster_engine", "control_api", "database"):
        wiring = f"inventory/group_vars/all/{name}.yml"
        (root / wiring).symlink_to(ROOT / wiring)
    play = {"name": "Slurm", "hosts": "all", "gather_facts": False, "roles": ["cluster_engine"]}
    (root / "playbooks/slurm.yml").write_text(yaml.safe_dump([play]))
    (root / "inventory/groups.yml").write_text("all:\n")
    (root / "ansible.cfg").write_text((ROOT / "ansible.cfg").read_text())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings, "ansible_root", lambda: root)
        yield state


@pytest.fixture(scope="module")
def deployed(nodes: dict[str, Node], state: Path) -> dict[str, Node]:
    deploy(nodes, state)
    return nodes


def deploy(nodes: dict[str, Node], state: Path) -> Result:
    """Run the role as a deploy does."""
    text = SITE.format(**{name: node.address for name, node in nodes.items()})
    hosts = inventory.build(load(parse(text, "site.yml")), version="1", state=str(state))["all"]
    for name, node in nodes.items():
        connection = {"ansible_connection": "community.docker.docker", "ansible_host": node.identity}
        hosts["hosts"][name] |= {**connection, "ansible_become": False}
    done = playbook.run("slurm", {"all": {**hosts, "children": {}}}, state=state, listen=lambda _: None)
    done.require_success()
    return done


def test_a_node_takes_its_configuration_from_the_controller_and_runs_the_jobs_of_sessions(
    deployed: dict[str, Node],
) -> None:
    master, worker = deployed["m1"], deployed["w1"]
    master.wait("sinfo --noheader --partition=penstock --format='%N %T %G'", "w1 idle fgpu:4000")
    assert "No such file" in worker.run("ls /etc/slurm/slurm.conf || true")
    words = "--partition=penstock --gres=fgpu:500 --nodelist=w1 --mem=64M --export=NIL --chdir=/ --output=/dev/null"
    submit = f"sbatch {words} --wrap='exec sleep 600'"
    master.run(f"runuser --user penstock -- {submit}")
    master.wait("squeue --noheader --format='%T %u %N'", "RUNNING penstock w1")
    worker.wait("ps -o uid= -C sleep", "64200")
    assert "/job_" in worker.run("cat /proc/$(pgrep -x sleep | head -1)/cgroup")
    master.run("useradd ada")
    refused = master.run(f"runuser --user ada -- {submit}", code=1)
    assert "not permitted to use this partition" in refused or "Invalid" in refused
    master.run("scancel --user=penstock")
    master.wait("squeue --noheader; echo end", "end")


def test_a_second_deploy_changes_nothing(deployed: dict[str, Node], state: Path) -> None:
    assert {name: counts.changed for name, counts in deploy(deployed, state).nodes.items()} == {"m1": 0, "w1": 0}


def test_what_was_killed_comes_back(deployed: dict[str, Node]) -> None:
    for name, unit in (("w1", "slurmd"), ("m1", "slurmctld")):
        before = deployed[name].run(f"systemctl show --property=MainPID {unit}")
        deployed[name].run(f"systemctl kill --signal=KILL {unit}")
        deadline = time.monotonic() + START_S
        while deployed[name].run(f"systemctl show --property=MainPID {unit}") in (before, "MainPID=0\n"):
            assert time.monotonic() < deadline
            time.sleep(0.3)
    deployed["m1"].wait("sinfo --noheader --partition=penstock --format='%N %T'", "w1 idle")
