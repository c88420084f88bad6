"""Slurm in the site file: what is accepted, what every mistake says, and what nodes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from appliance.site import inventory
from appliance.site.model import Site
from appliance.site.preflight import _ports
from tests.unit.appliance.site.written import problems, site

ROOT = Path(__file__).parents[4]
ROLE = ROOT / "roles/cluster_engine"
NODES = """\
name: north
engine: slurm
nodes:
  - {name: m1, address: 10.0.0.2, roles: [reservoir, master]}
  - name: w1
    address: 10.0.0.3
    roles: [worker]
    agent_port: 6001
    gpus: {count: 4}
    slurm: {cores: 64, memory_mib: 250000}
  - name: w2
    address: 10.0.0.4
    roles: [worker, slurm]
    agent_port: 6001
    gpus: {count: 8}
    slurm: {cores: 32, memory_mib: 90000, gpus: 3}
  - {name: c1, address: 10.0.0.5, roles: [slurm], slurm: {cores: 16, memory_mib: 32000}}
"""
BACKUP = "slurm: {backup_controller: c1, state_folder: /mnt/shared/slurm}\n"


def built(text: str = NODES) -> dict[str, Any]:
    found: dict[str, Any] = inventory.build(site(text), version="1.2.3")["all"]
    return found


def rendered(template: str, text: str = NODES, node: str = "w1") -> str:
    """What the role writes for a site, by Jinja alone."""
    ansible = Environment(trim_blocks=True, undefined=StrictUndefined, autoescape=False)
    told = {"cluster_engine_site": built(text)["vars"]["site_slurm"], "cluster_engine_node": node}
    known = {**yaml.safe_load((ROLE / "defaults/main.yml").read_text()), **told}
    for name, expression in yaml.safe_load((ROLE / "vars/main.yml").read_text()).items():
        known[name] = ansible.compile_expression(expression.strip("{} "))(**known)
        known[name] = known[name] if isinstance(known[name], bool | list) else list(known[name])
    return ansible.from_string((ROLE / "templates" / template).read_text()).render(known)


def test_a_site_without_slurm_has_none_of_it() -> None:
    plain = built("name: one\nnodes: [{name: m1, address: 10.0.0.2, roles: [reservoir, master]}]\n")
    assert plain["children"]["cluster_engine"]["hosts"] == {}
    assert plain["vars"]["site_engine"] == "direct"
    assert "engine" not in plain["vars"]["site_control_api"]


def test_controllers_and_nodes_that_run_jobs_are_nodes_of_slurm() -> None:
    hosts = built()
    assert list(hosts["children"]["cluster_engine"]["hosts"]) == ["m1", "w1", "w2", "c1"]
    assert hosts["vars"]["site_control_api"]["engine"] == "slurm"
    assert hosts["hosts"]["w2"]["node_settings"]["foreign_gpus"] == 3
    assert hosts["hosts"]["w1"]["node_settings"]["lease_users"] == [64200]
    assert "10.0.0.3:6818" in hosts["hosts"]["w1"]["node_ways"], "sessions do not reach Slurm"


def test_the_configuration_says_what_each_node_lends() -> None:
    lines = rendered("etc/slurm/slurm.conf.j2").splitlines()
    assert [line for line in lines if line.startswith(("SlurmctldHost", "NodeName", "PartitionName", "GresTypes"))] == [
        "SlurmctldHost=m1(10.0.0.2)",
        "GresTypes=fgpu,gpu",
        "NodeName=w1 NodeAddr=10.0.0.3 CPUs=64 RealMemory=250000 Gres=fgpu:4000 State=UNKNOWN",
        "NodeName=w2 NodeAddr=10.0.0.4 CPUs=32 RealMemory=90000 Gres=fgpu:5000,gpu:3 State=UNKNOWN",
        "NodeName=c1 NodeAddr=10.0.0.5 CPUs=16 RealMemory=32000 State=UNKNOWN",
        "PartitionName=penstock Nodes=w1,w2 AllowGroups=penstock MaxTime=INFINITE PriorityTier=2 State=UP",
        "PartitionName=people Nodes=w2,c1 Default=YES DefMemPerCPU=2000 MaxTime=INFINITE PriorityTier=1 State=UP",
    ]
    assert "AccountingStorageTRES=gres/fgpu,gres/gpu" in lines
    assert "NodeName=w2 Name=gpu File=/dev/nvidia[5-7]" in rendered("etc/slurm/gres.conf.j2")


def test_the_accounting_is_on_the_master_and_keeps_as_long_as_the_site_says() -> None:
    hosts = built(NODES + "slurm: {accounting_days: 30}\n")
    assert list(hosts["children"]["slurm_accounting"]["hosts"]) == ["m1"]
    assert hosts["children"]["munge"] == hosts["children"]["cluster_engine"]
    assert hosts["vars"]["site_slurm"]["accounting_days"] == 30
    assert "AccountingStorageHost=10.0.0.2" in rendered("etc/slurm/slurm.conf.j2")
    ways = hosts["hosts"]["w1"]["node_ways"]
    assert ("10.0.0.2:6819" in ways, "10.0.0.3:6819" in ways) == (True, False), "sessions do not reach it"


def test_a_backup_controller_comes_after_the_master() -> None:
    lines = rendered("etc/slurm/slurm.conf.j2", NODES + BACKUP).splitlines()
    controllers = [line for line in lines if line.startswith(("SlurmctldHost", "StateSaveLocation"))]
    assert controllers == [
        "SlurmctldHost=m1(10.0.0.2)",
        "SlurmctldHost=c1(10.0.0.5)",
        "StateSaveLocation=/mnt/shared/slurm",
    ]
    assert "--conf-server 10.0.0.2:6817,10.0.0.5:6817 -N w1" in rendered("etc/default/slurmd.j2", NODES + BACKUP)


OF_W1 = "    gpus: {count: 4}\n    slurm: {cores: 64, memory_mib: 250000}\n"
BEGIN = "engine: slurm\n"


@pytest.mark.parametrize(
    ("before", "after", "where", "reason", "hint"),
    [
        ("engine: slurm", "engine: direct", "nodes[1]", "w1 is a node of Slurm", "write `engine: slurm`"),
        (OF_W1, "    gpus: {count: 4}\n", "nodes[1]", "nobody tells Slurm what w1 has", "nproc"),
        ("    gpus: {count: 4}\n", "", "nodes[1]", "nobody tells Slurm how many GPUs w1 has", "gpus: {count"),
        ("250000}", "250000, gpus: 1}", "nodes[1].slurm.gpus", "none of its GPUs can belong to others", "role slurm"),
        ("gpus: 3}", "gpus: 9}", "nodes[2].slurm.gpus", "w2 has 8 GPUs", "no more than it has"),
        (
            "roles: [slurm]",
            "roles: [slurm], release: trixie",
            "nodes[3].release",
            "c1 runs trixie and m1 bookworm, whose Slurms do not speak to each other",
            "one release of Debian",
        ),
        (
            BEGIN,
            f"{BEGIN}slurm: {{backup_controller: x1, state_folder: /mnt/a}}\n",
            "slurm.backup_controller",
            "x1 is no other node",
            "beside the master",
        ),
        (
            BEGIN,
            f"{BEGIN}slurm: {{backup_controller: c1}}\n",
            "slurm",
            "needs the jobs of the one before",
            "state_folder",
        ),
        ("agent_port: 6001", "agent_port: 6818", "nodes[1].agent_port", "also used by Slurm", "another port"),
        (
            "roles: [reservoir, master]",
            "roles: [reservoir, master], slurm: {cores: 1, memory_mib: 1}",
            "nodes[0].slurm",
            "m1 runs no jobs",
            "remove slurm",
        ),
    ],
)
def test_what_cannot_be_is_refused(before: str, after: str, where: str, reason: str, hint: str) -> None:
    assert before in NODES
    at, why, what = problems(NODES.replace(before, after, 1))[0]
    assert at.endswith(f": {where}")
    assert reason in why
    assert hint in what


def test_ports_of_slurm_belong_to_its_units() -> None:
    whole: Site = site(NODES)
    assert _ports(whole, whole.nodes[1])[6818] == ("slurmd.",)
    assert _ports(whole, whole.master)[6819] == ("slurmdbd.",)
    assert 6819 not in _ports(whole, whole.nodes[1])
