"""Drivers in the site file: what is accepted, what does not fit together, and the packages that come of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.site import gpu_driver, inventory
from appliance.site.gpu_driver import GpuDriver
from appliance.site.model import Site
from appliance.site.site_file import load
from common.errors import InputError
from common.yaml_document import parse
from reservoir.lock.file import read_manifest

ROOT = Path(__file__).parents[4]
SITE = """\
name: north
nodes:
  - {{name: m1, address: 10.0.0.2, roles: [reservoir, master]}}
  - {{name: w1, address: 10.0.0.3, roles: [{roles}], {more}}}
"""
DRIVERS = read_manifest(ROOT / "drivers.yml")


def site(more: str, roles: str = "worker") -> Site:
    more = f"agent_port: 6001, {more}" if roles == "worker" else more
    return load(parse(SITE.format(more=more, roles=roles), "site.yml"))


def problems(more: str, roles: str = "worker") -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        site(more, roles)
    return [(problem.where.partition(": ")[2], problem.reason) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "driver",
    [
        "{branch: 535}",
        "{branch: 570, source: nvidia, modules: open, fabric_manager: true, container_toolkit: true, reboot: true}",
        "{branch: 535, kernel: bundle}",
        "{source: preinstalled}",
        "{source: preinstalled, branch: 570}",
    ],
)
def test_drivers_that_fit(driver: str) -> None:
    built = inventory.build(site(f"driver: {driver}"), version="1")["all"]
    assert list(built["children"]["nvidia_driver"]["hosts"]) == ["w1"]


@pytest.mark.parametrize(
    ("more", "field", "reason"),
    [
        ("driver: {}", "driver", "the driver has no branch"),
        ("driver: {branch: 430}", "driver.branch", "is less than 470"),
        ("driver: {branch: 470, modules: open}", "driver.modules", "branch 470 has no open kernel modules"),
        ("driver: {source: preinstalled, modules: open}", "driver.modules", "is left as it is"),
        ("driver: {source: preinstalled, reboot: true}", "driver.reboot", "is left as it is"),
        ("driver: {source: preinstalled, fabric_manager: true}", "driver.fabric_manager", "is left as it is"),
        ("driver: {branch: 535, peermem: true}", "driver.peermem", "the node has no ib_address"),
        ("driver: {branch: 535}, simulated_gpus: {count: 1}", "driver", "w1 has no GPUs"),
        ("driver: {branch: 535}, gpus: {count: 0}", "driver", "w1 has no GPUs"),
    ],
)
def test_what_does_not_fit_is_named(more: str, field: str, reason: str) -> None:
    ((where, said),) = problems(more)
    assert where == f"nodes[1].{field}"
    assert reason in said


def test_a_driver_is_for_workers() -> None:
    assert ("nodes[1].driver", "w1 is not a worker") in problems("driver: {branch: 535}", roles="storage")


def test_peermem_goes_with_infiniband() -> None:
    described = site("ib_address: 10.1.0.3, driver: {branch: 535, peermem: true}")
    assert described.nodes[1].driver is not None
    assert described.nodes[1].driver.peermem
    settings = inventory.build(described, version="1")["all"]["hosts"]["w1"]["node_settings"]
    assert settings["kernel_modules"] == ["nvidia_peermem"], "its agent looks whether it is loaded"


def test_a_preinstalled_driver_installs_nothing() -> None:
    assert gpu_driver.packages(GpuDriver(source="preinstalled")).all == []  # type: ignore[arg-type]


def test_the_fabric_manager_is_of_the_drivers_branch_and_tied_to_its_version() -> None:
    made_of = gpu_driver.packages(GpuDriver(source="nvidia", branch=570, fabric_manager=True))  # type: ignore[arg-type]
    assert made_of.tuple_ == ["nvidia-kernel-dkms", "nvidia-driver-cuda", "nvidia-fabricmanager-570"]


@pytest.mark.parametrize("target", DRIVERS.targets, ids=lambda target: target.release)
def test_the_products_manifest_of_drivers_has_what_debians_driver_is_made_of(target: object) -> None:
    (chosen,) = [each for each in DRIVERS.targets if each is target]
    groups = DRIVERS.debian_groups(chosen).values()
    bundled = {name for group in groups for name in group.packages}
    wanted = gpu_driver.packages(GpuDriver(branch=535, kernel="bundle"))
    assert set(wanted.all) == bundled
    (together,) = [each for each in DRIVERS.target_version_sets(chosen) if each.name.startswith("driver-")]
    assert set(together.equal) == set(together.packages) == set(wanted.tuple_)
