"""A site of the lab as its tests see it: a journey that also looks at nodes, containers and playbooks."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.lab.journey import ROOT, Journey

PYTHON = "/opt/penstock/site/bin/python"
SITE_FILE = "/etc/penstock/site.yml"
DRY_RUN = Path(__file__).with_name("dry_run.py")
PLAY = """
root=$(dirname "$(/opt/penstock/site/bin/python -c 'import appliance; print(appliance.__file__)')")/ansible
export ANSIBLE_CONFIG=$root/ansible.cfg PATH=/opt/penstock/site/bin:$PATH LC_ALL=C.UTF-8
cd "$root"
exec ansible-playbook -i "$root/inventory/groups.yml" -i /var/lib/penstock/site/hosts.json "$1"
"""
"""Runs a playbook on the controller as a deploy runs the product's, with the inventory that the last one left."""

Counts = dict[str, dict[str, int]]
"""How many tasks of a playbook ended how, by node."""


def kept() -> bool:
    """PENSTOCK_KEEP_LAB=1 leaves the lab up for a look afterwards, and the next run goes on with it."""
    return os.environ.get("PENSTOCK_KEEP_LAB") == "1"


@dataclass
class LabSite(Journey):
    """A site of the lab. A `quiet` one shows what long commands say only where they fail."""

    quiet: bool = False

    def show_penstock(self, *arguments: str | Path) -> None:
        """Run a long command; raises CalledProcessError where it fails."""
        if not self.quiet:
            super().show_penstock(*arguments)
            return
        result = self.try_penstock(*arguments)
        if result.returncode:
            print(result.stdout, result.stderr, sep="\n", flush=True)
        result.check_returncode()

    def bare(self) -> None:
        """Start the nodes as they are before anything is installed on them."""
        self.down()  # an earlier run's nodes are not bare
        with self.phase(f"start the nodes of {self.name}"):
            self.show_penstock("lab", "up", "-f", self.site, "--bundle", self.bundle, "--no-deploy")

    @cached_property
    def name(self) -> str:
        """The name of the site."""
        return str(self.lab["name"])

    def install(self) -> None:
        """Install what deploys on the reservoir node, and nothing else."""
        done = self.in_node(self.reservoir, "sh", "/media/penstock/install.sh", "--trust-first")
        assert done.returncode == 0, done.stdout + done.stderr

    def put(self, path: str, text: str) -> None:
        """Write a file on the reservoir node."""
        done = self.in_node(self.reservoir, "tee", path, stdin=text)
        assert done.returncode == 0, done.stderr

    def is_deployed(self) -> bool:
        """Return whether a deploy has come to its end already, as in a lab that was kept."""
        return bool(self.in_node(self.reservoir, "sh", "-c", "ls /var/lib/penstock/site/deploys").stdout)

    def deploy(self, path: str) -> tuple[int, str]:
        """Deploy a site file of the reservoir node; return the exit code and what was said."""
        words = ("penstock", "site", "deploy", "-f", path, "--bundle", "/media/penstock")
        done = self.in_node(self.reservoir, *words)
        return done.returncode, done.stdout + done.stderr

    def last_deploy(self) -> dict[str, Any]:
        """Return the record of the last deploy."""
        newest = 'cat "$(ls -d /var/lib/penstock/site/deploys/*.json | tail -n 1)"'
        done = self.in_node(self.reservoir, "sh", "-c", newest)
        assert done.returncode == 0, done.stderr
        record: dict[str, Any] = json.loads(done.stdout)
        return record

    def dry_run(self, site: str) -> Counts:
        """Return what the playbooks would do on the nodes for the text of a site file."""
        done = self.in_node(self.reservoir, PYTHON, "-c", DRY_RUN.read_text(), stdin=site)
        assert done.returncode == 0, done.stdout + done.stderr
        counts: Counts = json.loads(done.stdout)
        return counts

    def play(self, playbook: Path) -> subprocess.CompletedProcess[str]:
        """Run a playbook of Molecule on the nodes."""
        docker("cp", str(ROOT / "molecule"), f"{self.containers[self.reservoir]}:/root")
        path = f"/root/{playbook.relative_to(ROOT)}"
        return self.in_node(self.reservoir, "sh", "-euc", PLAY, "sh", path)

    def node_states(self) -> dict[str, str]:
        """Return what Docker says of each node."""
        return {node["name"]: node["state"] for node in self.lab["nodes"]}

    def objects(self) -> dict[str, list[str]]:
        """Return everything that Docker has of this lab, by label."""
        mine = ("--filter", f"label=io.penstock.lab={self.name}", "--quiet")
        return {
            "containers": sorted(docker("ps", "--all", *mine).split()),
            "networks": sorted(docker("network", "ls", *mine).split()),
            "volumes": sorted(docker("volume", "ls", *mine).split()),
        }


def docker(*words: str) -> str:
    """Run docker and return what it printed."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {words[:2]} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout
