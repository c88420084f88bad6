"""One closed lab for all tests of this folder, which take it from bare nodes to its end.

It has two sites. Users work at `users`, the example's site; `other` is one node, on which the roles that a site has
once run on the other Debian release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests import product_bundle
from tests.lab import sites as site_files
from tests.lab.growth import Growth, grow
from tests.lab.journey import ROOT
from tests.lab.site import SITE_FILE, Counts, LabSite, kept

SITES = ("users", "other")
JOINS = "worker2"
"""The worker of the users' site that joins it when all others are installed."""

STAGES = ("bare", "dry_runs", "growth", "deployed", "journey", "removed")
"""Fixtures in the order in which the lab comes to them: a test runs at the last of its own."""

Sites = dict[str, LabSite]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of one stage after those of the other; a lab that is kept is not removed by a test."""
    items.sort(key=_stage)
    if kept():
        ends = [item for item in items if _stage(item) == STAGES.index("removed")]
        config.hook.pytest_deselected(items=ends)
        items[:] = [item for item in items if item not in ends]


def _stage(item: pytest.Item) -> int:
    names = getattr(item, "fixturenames", ())
    return max((number for number, stage in enumerate(STAGES) if stage in names), default=-1)


def in_both(sites: Sites, do: Callable[[LabSite], Any]) -> dict[str, Any]:
    """Do the same at both sites at once and return what came of it, by site."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(sites, pool.map(do, sites.values()), strict=True))


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Both sites and the bundle for them; nothing of them is left afterwards."""
    folder = tmp_path_factory.mktemp("lab")
    documents = (site_files.users_site(), site_files.OTHER)
    paths = [site_files.write(site, folder / f"{name}.yml") for name, site in zip(SITES, documents, strict=True)]
    users, other = (
        LabSite(path, bundles=ROOT / "build" / "bundle", config_home=folder / f"config-{path.stem}") for path in paths
    )
    with product_bundle.alone():
        users.build()
        users.bundle = product_bundle.linked(users.bundle, ROOT / "build" / "lab")
    other.bundle, other.quiet = users.bundle, True
    sites = {"users": users, "other": other}
    try:
        yield sites
    finally:
        if not kept():
            in_both(sites, LabSite.down)


@pytest.fixture(scope="session")
def bare(sites: Sites) -> Sites:
    """The sites' nodes as an integrator finds them; one controller has a time zone of its own already."""
    in_both(sites, LabSite.bare)
    controller = sites["other"].reservoir
    local = "ln -sf /usr/share/zoneinfo/Asia/Kathmandu /etc/localtime && date +%z"
    zone = sites["other"].in_node(controller, "sh", "-c", local)
    assert zone.stdout.strip() == "+0545", zone.stderr
    return sites


@pytest.fixture(scope="session")
def dry_runs(bare: Sites) -> dict[str, Counts]:
    """What a dry run on bare nodes came to, by site."""

    def dry_run(site: LabSite) -> Counts:
        site.install()
        return site.dry_run(site.site.read_text())

    return in_both(bare, dry_run)


@pytest.fixture(scope="session")
def growths(sites: Sites) -> dict[str, Growth | None]:
    """The sites, deployed more than once from the bundle alone, and how that of the users came to its second worker."""

    def install(site: LabSite) -> Growth | None:
        if JOINS in site.containers:
            growth = grow(site, JOINS)
            site.up()
            return growth
        site.up()
        code, said = site.deploy(SITE_FILE)
        assert code == 0, said
        return None

    return in_both(sites, install)


@pytest.fixture(scope="session")
def growth(growths: dict[str, Growth | None]) -> Growth:
    """How the users' site came to its second worker."""
    found = growths["users"]
    assert found
    return found


@pytest.fixture(scope="session")
def deployed(sites: Sites, growths: dict[str, Growth | None]) -> Sites:
    """The sites, installed from the bundle alone."""
    assert growths.keys() == sites.keys()
    return sites


@pytest.fixture(scope="session")
def journey(deployed: Sites) -> LabSite:
    """The users' site, and a user who is logged in."""
    deployed["users"].login()
    return deployed["users"]


@pytest.fixture
def removed(sites: Sites) -> Sites:
    """The sites, for tests of their end."""
    for site in sites.values():
        if not site.objects()["containers"]:
            site.bare()
    return sites
