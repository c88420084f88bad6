"""The roles of Slurm, run by Ansible on machines with systemd: a controller with accounting, a node, the backup."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.site import inventory, playbook, settings
from appliance.site.playbook import Result
from appliance.site.site_file import load
from common.yaml_document import parse
from tests.integration.reservoir.conftest import Machine, docker
from tests.tree import ROOT

SITE = """\
name: north
engine: slurm
slurm: {{backup_controller: c1, state_folder: {folder}}}
nodes:
  - {{name: m1, address: {m1}, roles: [reservoir, master]}}
  - name: w1
    address: {w1}
    roles: [worker, slurm]
    agent_port: 6001
    simulated_gpus: {{count: 4}}
    slurm: {{cores: 16, memory_mib: 64000}}
  - {{name: c1, address: {c1}, roles: [slurm], slurm: {{cores: 4, memory_mib: 8000}}}}
"""
SHARED = "/mnt/shared/slurm"
GROUPS = ("munge", "slurm_accounting", "cluster_engine")
PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd", "slurmdbd", "mariadb-server", "python3-apt")
HEARD_S = 150
"""Something may take so long: a node that was slow to answer once is asked again after a hundred seconds."""
NOBODY = 'test -z "$(squeue --noheader || echo failed)" && echo "no jobs"', "no jobs"
"""A job that was cancelled completes for a while: it is listed, and holds what it had."""
SINCE = "--starttime=now-1hour"
"""Of its own, `sacct` tells what there was today."""


@dataclass(frozen=True)
class Node(Machine):
    """A machine with systemd."""

    address: str

    def wait(self, script: str, what: str, seconds: float = HEARD_S) -> None:
        deadline = time.monotonic() + seconds
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
    node.run("echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/test")
    node.run("apt-get install --yes --no-install-recommends /debs/*.deb")


@pytest.fixture(scope="module")
def nodes(node_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    debs = _debs(node_image, tmp_path_factory.mktemp("slurm"))
    network = docker("network", "create", "--internal", f"penstock-test-{uuid.uuid4().hex[:8]}")
    # what both controllers have mounted
    shared = docker("volume", "create")
    found: dict[str, Node] = {}
    # as a lab starts its nodes
    options = ["--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cap-drop", "SYS_TIME"]
    options += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
    options += ["--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec", "--cgroupns=host"]
    options += ["--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw", "--volume", f"{debs}:/debs:ro"]
    of_controllers = ["--volume", f"{shared}:/mnt/shared"]
    try:
        for name, more in {"m1": of_controllers, "w1": [], "c1": of_controllers}.items():
            words = ["--network", network, "--hostname", name, "--network-alias", name]
            identity = docker("run", "--detach", *words, *options, *more, node_image, "/sbin/init")
            shown = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", identity)
            found[name] = Node(identity, shown)
        with ThreadPoolExecutor() as pool:
            list(pool.map(_prepare, found.values()))
        yield found
    finally:
        for node in found.values():
            docker("rm", "--force", "--volumes", node.identity, check=False)
        docker("network", "rm", network, check=False)
        docker("volume", "rm", shared, check=False)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The controller's state; its program has the playbook of Slurm alone."""
    state = tmp_path_factory.mktemp("state")
    (state / "munge-key").write_text(f"{'0123456789abcdef' * 8}\n")
    root = state / "ansible"
    for folder in ("playbooks", "inventory/group_vars/all"):
        (root / folder).mkdir(parents=True)
    (root / "roles").symlink_to(ROOT / "roles")
    for name in (*GROUPS, "control_api", "database"):
        wiring = f"inventory/group_vars/all/{name}.yml"
        (root / wiring).symlink_to(ROOT / wiring)
    (root / "playbooks/cluster_engine.yml").symlink_to(ROOT / "playbooks/cluster_engine.yml")
    (root / "inventory/groups.yml").write_text("all:\n")
    (root / "ansible.cfg").write_text((ROOT / "ansible.cfg").read_text())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings, "ansible_root", lambda: root)
        yield state


@pytest.fixture(scope="module")
def deployed(nodes: dict[str, Node], state: Path) -> dict[str, Node]:
    deploy(nodes, state).require_success()
    return nodes


def deploy(nodes: dict[str, Node], state: Path, *, folder: str = SHARED, check: bool = False) -> Result:
    """Run the roles as a deploy does."""
    text = SITE.format(**{name: node.address for name, node in nodes.items()}, folder=folder)
    hosts = inventory.build(load(parse(text, "site.yml")), version="1", state=str(state))["all"]
    for name, node in nodes.items():
        connection = {"ansible_connection": "community.docker.docker", "ansible_host": node.identity}
        hosts["hosts"][name] |= {**connection, "ansible_become": False}
    hosts["children"] = {group: hosts["children"][group] for group in GROUPS}
    return playbook.run("cluster_engine", {"all": hosts}, state=state, listen=lambda _: None, check=check)


def test_a_node_takes_its_configuration_from_the_controller_and_runs_the_jobs_of_sessions(
    deployed: dict[str, Node],
) -> None:
    master, worker = deployed["m1"], deployed["w1"]
    master.wait("sinfo --noheader --partition=penstock --format='%N %T %G'", "w1 idle fgpu:4000")
    assert "No such file" in worker.run("ls /etc/slurm/slurm.conf || true")
    words = "--partition=penstock --gres=fgpu:500 --nodelist=w1 --mem=64M --export=ALL --chdir=/ --output=/dev/null"
    submit = f"sbatch {words} --wrap='exec sleep 600'"
    master.run(f"runuser --user penstock -- {submit}")
    master.wait("squeue --noheader --format='%T %u %N'", "RUNNING penstock w1")
    worker.wait("ps -o uid= -C sleep", "64200")
    assert "/job_" in worker.run("cat /proc/$(pgrep -x sleep | head -1)/cgroup")
    master.run("scancel --user=penstock")
    master.wait(*NOBODY)


def test_people_get_neither_the_partition_of_sessions_nor_their_shares_of_gpus(deployed: dict[str, Node]) -> None:
    master = deployed["m1"]
    for node in deployed.values():
        node.run("useradd --uid 5001 ada")
    submit = "cd / && runuser --user ada -- sbatch --output=/dev/null --wrap='exec sleep 600'"
    refused = master.run(f"{submit} --partition=penstock", code=1)
    assert "not permitted to use this partition" in refused or "Invalid" in refused
    for asked in ("--gres=fgpu:4000", "--partition=people --gres=fgpu", "--nodelist=w1 --gres=fgpu:1,fgpu:2"):
        assert "fgpu is for sessions of Penstock" in master.run(f"{submit} {asked}", code=1), asked
    number = master.run(f"{submit} --hold").split()[-1]
    update = f"scontrol update JobId={number} TresPerNode=gres:fgpu:4000"
    assert "Unspecified error" in master.run(f"cd / && runuser --user ada -- {update}", code=1)
    assert "fgpu" not in master.run("squeue --noheader --format=%b")
    master.run("scancel --user=ada")
    master.wait(*NOBODY)


def test_a_job_of_people_that_waits_for_more_keeps_no_session_from_what_is_free(deployed: dict[str, Node]) -> None:
    master = deployed["m1"]
    of_ada = "cd / && runuser --user ada -- sbatch --nodelist=w1 --output=/dev/null --wrap='exec sleep 600'"
    master.run(f"{of_ada} --cpus-per-task=8 --time=10")
    listed = "squeue --noheader --format='%T %u %C %m' | sort | xargs"
    # nobody said how much memory: it has that of its cores
    master.wait(listed, "RUNNING ada 8 2000M")
    master.run(f"{of_ada} --cpus-per-task=16 --time=10")
    master.wait(listed, "PENDING ada 16 2000M")
    words = "--partition=penstock --gres=fgpu:500 --nodelist=w1 --mem=64M --export=ALL --chdir=/ --output=/dev/null"
    time.sleep(6)  # so long backfill takes to plan for the one that waits
    master.run(f"runuser --user penstock -- sbatch {words} --wrap='exec sleep 600'")
    master.wait(listed, "RUNNING penstock 1 64M")
    master.run("scancel --user=ada && scancel --user=penstock")
    master.wait(*NOBODY)


def test_a_second_deploy_changes_nothing(deployed: dict[str, Node], state: Path) -> None:
    nothing = dict.fromkeys(deployed, 0)
    for check in (True, False):
        done = deploy(deployed, state, check=check)
        done.require_success()
        assert {name: counts.changed for name, counts in done.nodes.items()} == nothing


def test_the_state_of_two_controllers_lies_on_a_mount(deployed: dict[str, Node], state: Path) -> None:
    failed = deploy(deployed, state, folder="/srv/slurm").failed()
    for name in ("m1", "c1"):
        assert "/srv/slurm is on the root file system of this node, and two controllers need one" in str(failed[name])
    assert "StateSaveLocation=/mnt/shared/slurm" in deployed["m1"].run("cat /etc/slurm/slurm.conf")


def test_accounting_tells_what_sessions_had(deployed: dict[str, Node]) -> None:
    master = deployed["m1"]
    words = "--partition=penstock --gres=fgpu:500 --nodelist=w1 --mem=64M --export=ALL --chdir=/ --output=/dev/null"
    master.run(f"runuser --user penstock -- sbatch {words} --comment=penstock:of-a-session --wrap='exec sleep 600'")
    master.wait("squeue --noheader --format='%T %k'", "RUNNING penstock:of-a-session")
    master.run("scancel --user=penstock")
    master.wait(*NOBODY)
    columns = "--format=User,State,NodeList,Comment,AllocTRES"
    told = f"sacct {SINCE} --allusers --allocations --noheader --parsable2 {columns}"
    master.wait(f"{told} | grep of-a-session | grep -v RUNNING", "penstock|CANCELLED")
    line = master.run(f"{told} | grep of-a-session")
    assert "|w1|penstock:of-a-session|" in line
    assert "gres/fgpu=500" in line
    assert "north" in master.run("sacctmgr --noheader --parsable2 show cluster format=Cluster")


def test_nobody_but_slurm_reaches_the_database(deployed: dict[str, Node]) -> None:
    master = deployed["m1"]
    assert "3306" not in master.run("ss --listening --tcp --numeric")
    assert "Access denied" in master.run("runuser --user nobody -- mariadb slurm_acct_db 2>&1", code=1)
    assert "Access denied" in master.run("runuser --user nobody -- mariadb --user=slurm slurm_acct_db 2>&1", code=1)


def test_jobs_are_told_afterwards_where_the_database_was_away(deployed: dict[str, Node]) -> None:
    master = deployed["m1"]
    master.run("systemctl stop mariadb slurmdbd")
    words = "--partition=penstock --gres=fgpu:500 --nodelist=w1 --mem=64M --export=ALL --chdir=/ --output=/dev/null"
    master.run(f"runuser --user penstock -- sbatch {words} --comment=penstock:unseen --wrap='exec true'")
    master.wait("squeue --noheader --states=COMPLETED --format='%T %k'", "COMPLETED penstock:unseen")
    master.run("systemctl start mariadb slurmdbd")
    told = f"sacct {SINCE} --allusers --noheader --parsable2 --format=State,Comment"
    master.wait(told, "COMPLETED|penstock:unseen")


def test_the_backup_controller_takes_over_with_all_jobs_and_gives_back(deployed: dict[str, Node]) -> None:
    master, backup, worker = deployed["m1"], deployed["c1"], deployed["w1"]
    words = "--partition=penstock --gres=fgpu:500 --nodelist=w1 --mem=64M --export=ALL --chdir=/ --output=/dev/null"
    submit = f"runuser --user penstock -- sbatch {words} --wrap='exec sleep 600' --comment="
    master.run(f"{submit}before")
    listed = "squeue --noheader --format='%T %k' | sort | xargs"
    master.wait(listed, "RUNNING before")
    master.run("systemctl stop slurmctld")
    try:
        backup.wait(listed, "RUNNING before")
        master.run(f"{submit}during")
        master.wait(listed, "RUNNING before RUNNING during")
    finally:
        master.run("systemctl start slurmctld")
    master.wait("scontrol ping", "Slurmctld(primary) at m1 is UP")
    master.wait(listed, "RUNNING before RUNNING during")
    # one that was begun last runs for Slurm before its program does
    worker.wait("test $(pgrep --count --exact sleep) = 2 && echo both", "both")
    master.run("scancel --user=penstock")
    master.wait(*NOBODY)


def test_what_was_killed_comes_back(deployed: dict[str, Node]) -> None:
    for name, unit in (("w1", "slurmd"), ("m1", "slurmctld"), ("m1", "slurmdbd"), ("m1", "munge"), ("m1", "mariadb")):
        before = deployed[name].run(f"systemctl show --property=MainPID {unit}")
        deployed[name].run(f"systemctl kill --signal=KILL {unit}")
        deadline = time.monotonic() + HEARD_S
        while deployed[name].run(f"systemctl show --property=MainPID {unit}") in (before, "MainPID=0\n"):
            assert time.monotonic() < deadline
            time.sleep(0.3)
    # a controller that is killed may have forgotten that the jobs of its last seconds were cancelled
    ready = "sinfo --noheader --partition=penstock --responding --states=idle,mixed --format=%N"
    deployed["m1"].wait(ready, "w1")
