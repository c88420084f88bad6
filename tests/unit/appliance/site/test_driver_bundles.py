"""Whether bundles have the drivers of a site, and what is said where they do not."""

from __future__ import annotations

import pytest

from appliance.site import driver_bundles, gpu_driver
from appliance.site.gpu_driver import GpuDriver
from appliance.site.model import Site
from common.errors import InputError
from reservoir.contents.artifact import Artifact, DebianArtifact, DebianMetadata
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import SetVersions, TargetRecord

TARGETS = [
    TargetRecord(name="debian12", os="debian", release="bookworm", arch="amd64"),
    TargetRecord(name="debian13", os="debian", release="trixie", arch="amd64"),
]
DRIVER: dict[str, object] = {"branch": 570, "source": "nvidia", "fabric_manager": True}
NODES: list[dict[str, object]] = [
    {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
    {"name": "w1", "address": "10.0.0.3", "roles": ["worker"], "agent_port": 6001},
]


def site(release: str = "bookworm", **driver: object) -> Site:
    worker = {**NODES[1], "release": release, "driver": DRIVER | driver}
    return Site.model_validate({"name": "north", "nodes": [NODES[0], worker]})


def bundle(version: str, target: str = "debian12", **others: str) -> Bundle:
    """A bundle with all packages of the driver in one version, but for `others` by their names (`_` for `-`)."""
    said = {name.replace("_", "-"): other for name, other in others.items()}
    wanted = gpu_driver.packages(GpuDriver.model_validate(DRIVER)).all
    debs: list[Artifact] = [deb(name, said.get(name, version), target) for name in wanted if said.get(name, version)]
    return Bundle(name="drivers", version="1", created="2026-01-01T00:00:00Z", targets=TARGETS, artifacts=debs)


def deb(name: str, version: str, target: str) -> DebianArtifact:
    metadata = DebianMetadata.model_construct(stanza="", source=name)
    return DebianArtifact.model_construct(name=name, version=version, targets=[target], metadata=metadata)


def refused(site: Site, *bundles: Bundle) -> str:
    with pytest.raises(InputError) as caught:
        driver_bundles.require(site, bundles)
    return str(caught.value)


def test_a_driver_that_a_bundle_has_is_fine_beside_bundles_without_it() -> None:
    empty = Bundle(name="penstock", version="1", created="2026-01-01T00:00:00Z", targets=TARGETS, artifacts=[])
    driver_bundles.require(site(), [empty, bundle("570.86.10-1")])
    driver_bundles.require(site(source="preinstalled", fabric_manager=False), [empty])


def test_what_no_bundle_has_is_named() -> None:
    lacking = refused(site(), bundle("570.86.10-1", nvidia_fabricmanager_570=""))
    assert "nodes[1].driver: w1: no bundle has nvidia-fabricmanager-570 for bookworm" in lacking
    assert "Hint: build a bundle with it from drivers.yml" in lacking
    other_release = refused(site("trixie"), bundle("570.86.10-1"))
    assert "no bundle has nvidia-kernel-dkms, nvidia-driver-cuda, " in other_release


def test_another_branch_is_refused() -> None:
    said = refused(site(fabric_manager=False, branch=580), bundle("570.86.10-1"))
    assert (
        "nodes[1].driver.branch: w1: branch 580 is in no bundle for bookworm, which have nvidia-kernel-dkms 570."
        in said
    )


def test_a_fabric_manager_of_another_version_than_the_drivers_is_refused() -> None:
    said = refused(site(), bundle("570.86.10-1", nvidia_fabricmanager_570="570.86.15-1"))
    assert "not of one version" in said
    assert "nvidia-kernel-dkms 570.86.10" in said
    assert "nvidia-fabricmanager-570 570.86.15" in said


def test_of_several_versions_one_that_all_have_will_do() -> None:
    driver_bundles.require(site(), [bundle("570.86.10-1"), bundle("570.86.15-1", nvidia_fabricmanager_570="")])


def holding(bundle: Bundle, version: str) -> Bundle:
    """Return the bundle with a version set that binds all its packages to one version."""
    packages = {deb.name: version for deb in bundle.of_kind(DebianArtifact)}
    return bundle.model_copy(update={"version_sets": [SetVersions(name="d", target="debian12", packages=packages)]})


def test_a_newer_branch_of_a_second_bundle_is_refused_while_the_site_file_says_the_older_one() -> None:
    older, newer = bundle("570.86.10-1"), bundle("580.65.06-1", nvidia_fabricmanager_570="")
    said = refused(site(), older, newer)
    assert "nodes[1].driver.branch: w1: nodes would get nvidia-kernel-dkms 580.65.06, and not branch 570" in said
    assert "write `branch: 580`" in said
    driver_bundles.require(site(fabric_manager=False, branch=580), [older, newer])


def test_a_version_set_holds_the_branch_and_holds_another_one_against_the_site_file() -> None:
    older, newer = bundle("570.86.10-1"), bundle("580.65.06-1", nvidia_fabricmanager_570="")
    driver_bundles.require(site(), [holding(older, "570.86.10-1"), newer])
    said = refused(site(fabric_manager=False, branch=580), holding(older, "570.86.10-1"), newer)
    assert "nodes would get nvidia-kernel-dkms 570.86.10, and not branch 580" in said
