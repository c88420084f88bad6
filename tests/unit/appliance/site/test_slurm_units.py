"""Units of Slurm that `site verify` and agents look at: the variables of the inventory, as Ansible reads them."""

from __future__ import annotations

import yaml
from jinja2 import Environment

from appliance.site import cluster_engine
from appliance.site.model import Site
from tests.tree import ROOT

MASTER = {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]}
WORKER = {
    "name": "w1",
    "address": "10.0.0.3",
    "roles": ["worker"],
    "agent_port": 6001,
    "simulated_gpus": {"count": 2},
    "slurm": {"cores": 4, "memory_mib": 8000},
}
SITE = Site.model_validate({"name": "lab", "engine": "slurm", "nodes": [MASTER, WORKER]})


def units(node: str, groups: list[str], slurm: object) -> list[str]:
    """Return the units of Slurm that are looked at on a node."""
    text = yaml.safe_load((ROOT / "inventory/group_vars/all/restarts.yml").read_text())["restarts_services"]
    expression = Environment(autoescape=True).compile_expression(
        text.strip().removeprefix("{{").removesuffix("}}").strip()
    )
    found = expression(group_names=groups, inventory_hostname=node, site_slurm=slurm)
    return [unit for unit in found or () if unit.startswith(("munge", "mariadb", "slurm"))]


def test_each_node_of_slurm_is_looked_at_for_what_it_runs() -> None:
    told = cluster_engine.variables(SITE)
    of_master = ["munge", "slurm_accounting", "cluster_engine"]
    running = ["munge.service", "mariadb.service", "slurmdbd.service", "slurmctld.service"]
    assert units("m1", of_master, told) == running
    assert units("w1", ["munge", "cluster_engine"], told) == ["munge.service", "slurmd.service"]


def test_a_site_without_slurm_has_none_of_them() -> None:
    assert units("w1", [], {}) == []
