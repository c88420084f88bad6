"""Whether bundles have what only some sites need, what is said where they do not, and what nodes are asked."""

from __future__ import annotations

import pytest

from appliance.site import inventory, optional_bundles, preflight
from common.errors import InputError
from reservoir.contents.artifact import Artifact
from reservoir.contents.bundle import Bundle
from tests.tree import ROOT
from tests.unit.appliance.site.test_cluster_engine import NODES
from tests.unit.appliance.site.test_driver_bundles import TARGETS, deb
from tests.unit.appliance.site.written import site

ROLES = ROOT / "roles"
OF_SLURM = ("munge", "slurm-client", "slurmctld", "slurmd", "slurmdbd", "mariadb-server")


def bundle(*names: str, target: str = "debian12") -> Bundle:
    """A bundle with packages of these names."""
    more = {"filename": "some.deb", "size": 1}
    debs: list[Artifact] = [deb(name, "1", target).model_copy(update=more) for name in names]
    return Bundle(name="some", version="1", created="2026-01-01T00:00:00Z", targets=TARGETS, artifacts=debs)


def test_a_second_bundle_brings_what_a_site_with_slurm_needs() -> None:
    optional_bundles.require(site(NODES), [bundle("chrony"), bundle(*OF_SLURM)], ROLES)


def test_what_no_bundle_has_is_named_with_the_manifest_that_has_it() -> None:
    with pytest.raises(InputError) as caught:
        optional_bundles.require(site(NODES), [bundle("chrony"), bundle("munge", "slurm-client", "slurmctld")], ROLES)
    said = {problem.where: (problem.reason, problem.hint) for problem in caught.value.problems}
    assert set(said) == {f"nodes[{index}]" for index in range(4)}
    reason, hint = said["nodes[0]"]
    assert reason == "m1 needs mariadb-server, slurmd, slurmdbd, and no bundle has that for bookworm"
    assert hint == "build a bundle from slurm.yml of the product, import it, and deploy again"
    assert said["nodes[1]"][0] == "w1 needs slurmd, and no bundle has that for bookworm"


def test_a_bundle_for_another_release_does_not_count() -> None:
    with pytest.raises(InputError, match="no bundle has that for bookworm"):
        optional_bundles.require(site(NODES), [bundle(*OF_SLURM, target="debian13")], ROLES)


def test_a_site_without_slurm_and_monitoring_needs_none_of_it() -> None:
    plain = "name: one\nnodes: [{name: m1, address: 10.0.0.2, roles: [reservoir, master]}]\n"
    optional_bundles.require(site(plain), [bundle("chrony")], ROLES)
    with pytest.raises(InputError, match=r"build a bundle from monitoring\.yml"):
        optional_bundles.require(
            site(plain + "monitoring: {enabled: true, webhook: 'http://10.0.0.9/'}\n"), [bundle("chrony")], ROLES
        )


def test_nodes_judge_by_the_packages_of_all_bundles() -> None:
    """apt is asked what it would install before it has the sources of the site."""
    hosts = inventory.build(site(NODES), version="1")
    asked = preflight.with_questions(hosts, site(NODES), [bundle("chrony"), bundle("munge")], ROLES)
    index = asked["all"]["vars"]["site_indexes"]["bookworm"]
    assert index.count("Filename: ") == 2
