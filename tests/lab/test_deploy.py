"""The deploy of both sites: what it leaves is what it wants, on both Debian releases, and Molecule's checks hold."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from tests.lab.conftest import JOINS, SITES, Sites
from tests.lab.journey import ROOT
from tests.lab.site import Counts, LabSite
from tests.lab.sites import with_new_roles

CHECKS = {path.parent.name: path for path in sorted((ROOT / "molecule").glob("*/verify.yml"))}

Steps = dict[tuple[str, str], Future[Any]]
"""What is done at the deployed sites, by site and step."""


@pytest.fixture(scope="module")
def steps(deployed: Sites) -> Iterator[Steps]:
    """At each site one step after the other, beside those at the other site."""
    found: Steps = {}
    with ExitStack() as pools:
        for name, site in deployed.items():
            pool = pools.enter_context(ThreadPoolExecutor(1))
            if name == "users":
                found[name, "new roles"] = pool.submit(_new_roles, site)
            # the last ones: they touch files and restart what has read them
            found |= {(name, check): pool.submit(site.play, path) for check, path in CHECKS.items()}
        yield found
        for step in found.values():
            step.cancel()


def _new_roles(site: LabSite) -> Counts:
    return site.dry_run(yaml.safe_dump(with_new_roles(yaml.safe_load(site.site.read_text()))))


@pytest.mark.parametrize("site", SITES)
def test_a_second_deploy_changes_nothing(deployed: Sites, site: str) -> None:
    """That of the users caught up the worker that joined; `other` is a worker of the same release."""
    record = deployed[site].last_deploy()
    assert {name: tasks for name, tasks in record["tasks"].items() if name != JOINS} == {}
    changed = {name: node["changed"] for name, node in record["nodes"].items() if name != JOINS}
    assert changed == dict.fromkeys(deployed[site].containers.keys() - {JOINS}, 0)
    assert record["changed"] == []


def test_nodes_keep_what_they_have_compiled_of_modules(deployed: Sites) -> None:
    for site in deployed.values():
        for node in site.containers:
            assert site.in_node(node, "ls", "/run/penstock-modules").stdout, node


def test_a_dry_run_of_new_roles_on_nodes_that_know_their_packages(deployed: Sites, steps: Steps) -> None:
    counts: Counts = steps["users", "new roles"].result()
    assert counts.keys() == deployed["users"].containers.keys()
    for node, each in counts.items():
        assert (each["failed"], each["unreachable"]) == (0, 0), node
        assert each["changed"] > 0, node


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("site", SITES)
def test_what_molecule_checks_holds(steps: Steps, site: str, check: str) -> None:
    """Run on the controller, as the product's playbooks are, with the inventory of the deploy."""
    done = steps[site, check].result()
    assert done.returncode == 0, done.stdout + done.stderr
