"""The role of InfiniBand, run by Ansible on a machine without adapters, with real apt and packages of the bundle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.site.playbook import Result
from tests.integration.reservoir.conftest import Machine
from tests.integration.site import role_alone
from tests.integration.site.packages import machine_with_packages

WATCHED = "find /etc /usr/sbin /var/lib/dpkg/info -type f | sort | xargs sha256sum | sha256sum"
UNIT = "/etc/systemd/system/penstock-infiniband.service"


@dataclass(frozen=True)
class Worker(Machine):
    """A machine whose folder `class` is what the kernel shows of its devices, and whose source is the bundle."""

    folder: Path

    def deploy(self, *, check: bool = False, **infiniband: Any) -> Result:
        """Run the role as a deploy does."""
        return role_alone.deploy(
            self, self.folder, "infiniband", {"ib_address": "10.1.0.3", "infiniband": infiniband}, check=check
        )


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    role_alone.lay_out(tmp_path, "infiniband", monkeypatch)


@pytest.fixture
def worker(product_bundle: Path, node_image: str, tmp_path: Path) -> Iterator[Worker]:
    (tmp_path / "class").mkdir()
    options = ("--cap-add", "NET_ADMIN", "--volume", f"{tmp_path / 'class'}:/sys/class:ro")
    with machine_with_packages(product_bundle, "debian12", node_image, tmp_path, *options) as machine:
        yield Worker(machine.identity, tmp_path)


def reasons(result: Result) -> str:
    return " ".join(event.reason for event in result.failures)


def changes(result: Result) -> int:
    return sum(counts.changed for counts in result.nodes.values())


def test_what_programs_reach_infiniband_by_is_installed_once_and_adapters_keep_their_names(worker: Worker) -> None:
    before = worker.run(WATCHED)
    dry = worker.deploy(check=True, subnet_manager=True)
    dry.require_success()
    assert changes(dry) == 3, "names, who reads them, and packages; the rest is not foretold before these are there"
    assert worker.run(WATCHED) == before
    worker.deploy(subnet_manager=True, mtu=4092).require_success()
    # the rule that counts is ours, for both are of one name
    rule = worker.run("cat /etc/udev/rules.d/60-rdma-persistent-naming.rules")
    assert "%k NAME_KERNEL" in rule
    assert "%k NAME_FALLBACK" in worker.run("cat /lib/udev/rules.d/60-rdma-persistent-naming.rules")
    # real programs start, and say that there is nothing to use, on kernels with verbs and without
    assert re.search("No IB devices found|Failed to get IB devices list", worker.run("ibv_devinfo 2>&1 || true"))
    assert "OpenSM 3" in worker.run("opensm --version")
    worker.run("command -v ibstat && test -x /lib/udev/rdma_rename")
    assert "mtu=5: ALL=full;" in worker.run("cat /etc/opensm/partitions.conf")
    assert worker.run(f"systemd-analyze verify {UNIT} 2>&1 | grep penstock-infiniband || true") == ""
    again = worker.deploy(subnet_manager=True, mtu=4092)
    again.require_success()
    assert changes(again) == 0
    worker.deploy(subnet_manager=True).require_success()
    assert "mtu=4: ALL=full;" in worker.run("cat /etc/opensm/partitions.conf")


def test_an_interface_that_somebody_else_gives_an_address_is_left_alone(worker: Worker) -> None:
    before = worker.run(WATCHED)
    worker.run("ip link add ib0 type bridge && ip address add 10.9.0.3/24 dev ib0")
    assert "ib0 is to bear 10.1.0.3/24, and ib0 has 10.9.0.3 already" in reasons(worker.deploy())
    worker.run("ip address flush dev ib0 && ip link add ib1 type bridge && ip address add 10.1.0.3/16 dev ib1")
    assert "ib0 is to bear 10.1.0.3/24, and ib1 has that already" in reasons(worker.deploy())
    assert worker.run(WATCHED) == before
    worker.run("ip link delete ib1 && ip address add 10.1.0.3/24 dev ib0")
    worker.deploy(check=True).require_success()


def test_the_unit_gives_an_interface_what_the_site_says(worker: Worker) -> None:
    """By its own commands, but for the mode, which only InfiniBand has."""
    worker.deploy(mtu=1800, interface="ib-left").require_success()
    unit = worker.run(f"cat {UNIT}")
    assert "BindsTo=sys-subsystem-net-devices-ib\\x2dleft.device" in unit
    commands = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert commands[0] == "/usr/sbin/ip link set dev ib-left type ipoib mode datagram"
    worker.run("ip link add ib-left type bridge && ip address add 10.1.0.9/24 dev ib-left")
    for _ in range(2):
        worker.run(" && ".join(commands[1:]))
        shown = worker.run("ip -oneline -4 address show dev ib-left; ip link show dev ib-left")
        assert shown.count("inet ") == 1
        assert "inet 10.1.0.3/24" in shown
        assert "mtu 1800" in shown
        assert ",UP" in shown
