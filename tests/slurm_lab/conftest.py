"""A closed lab whose places Slurm lends: a master, two workers, a backup controller, people with `sbatch`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import product_bundle
from tests.lab import sites
from tests.lab.journey import ROOT
from tests.lab.site import LabSite, docker, kept
from tests.slurm_lab.steps import master

MEDIA = "/media/slurm"
CONTROLLERS = ("master1", "worker1")
DAEMONS = {
    "master1": ("munge", "mariadb", "slurmdbd", "slurmctld"),
    "worker1": ("munge", "slurmctld", "slurmd"),
    "worker2": ("munge", "slurmd"),
}
"""What of Slurm runs on each node."""


def worker(name: str, address: str, *roles: str) -> dict[str, Any]:
    """A worker with two simulated GPUs; Slurm takes its word for cores and memory."""
    gpus = {"simulated_gpus": {"count": 2}, "slurm": {"cores": 8, "memory_mib": 32000}}
    return {"name": name, "address": address, "roles": ["worker", *roles], "agent_port": 6001, **gpus}


SITE = {
    "name": "tests-slurm",
    "engine": "slurm",
    "slurm": {"backup_controller": CONTROLLERS[1], "state_folder": "/srv/controllers/slurm"},
    "nodes": [
        {"name": "master1", "address": "10.71.11.10", "roles": ["reservoir", "master"]},
        worker("worker1", "10.71.11.11", "slurm"),
        worker("worker2", "10.71.11.12"),
    ],
    "storage": [
        {"kind": "external", "name": "shared", "path": "/srv/shared"},
        {"kind": "external", "name": "controllers", "path": "/srv/controllers"},
    ],
    "session_storage": "shared",
    "backup": {"hour": sites.BACKUP_HOUR},
    "time": {"zone": sites.ZONE},
}


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabSite]:
    """The site, deployed from the product's bundle and Slurm's alone, and a user who is logged in."""
    folder = tmp_path_factory.mktemp("lab")
    path = sites.write(SITE, folder / "site.yml")
    site = LabSite(path, bundles=ROOT / "build" / "bundle", config_home=folder / "config")
    try:
        if not (site.objects()["containers"] and site.is_deployed()):
            _deploy(site)
        site.login()
        yield site
    finally:
        if not kept():
            site.down()


def _deploy(site: LabSite) -> None:
    """Build both bundles and deploy on bare nodes, from these alone."""
    with product_bundle.alone():
        site.build()
        site.bundle = product_bundle.linked(site.bundle, ROOT / "build" / "slurm-lab")
        of_slurm = _build(site)
    site.bare()
    docker("cp", str(of_slurm), f"{site.containers[site.reservoir]}:{MEDIA}")
    site.install()
    with site.phase("import Slurm's bundle"):
        taken = site.in_node(site.reservoir, "penstock", "reservoir", "import", "--trust-first", MEDIA)
        assert taken.returncode == 0, taken.stdout + taken.stderr
    site.up()


def _build(site: LabSite) -> Path:
    """Build Slurm's bundle; a second build fetches nothing."""
    bundles = ROOT / "build" / "slurm-bundle"
    with site.phase("build Slurm's bundle"):
        site.show_penstock("reservoir", "lock", "--if-changed", "slurm.yml")
        site.show_penstock("reservoir", "build", "slurm.yml", "--output", bundles)
    return max(bundles.glob("penstock-slurm-*"), key=lambda path: path.stat().st_mtime)


@pytest.fixture
def journey(lab: LabSite) -> Iterator[LabSite]:
    """The site with nothing of another test in it, and Slurm as it was deployed."""
    lab.project("2")
    lab.clear()
    yield lab
    for name, daemons in DAEMONS.items():
        lab.in_node(name, "systemctl", "start", *daemons)
    lab.until(lambda: "Slurmctld(primary) at master1 is UP" in master(lab, "scontrol ping"), "the controller answers")
