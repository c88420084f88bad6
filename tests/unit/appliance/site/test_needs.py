"""What nodes should be made of: the verdict on each need at its borders, and what the module sees of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.site import needs, preflight, sizing
from appliance.site.model import NodeRole, Site
from appliance.site.site_file import load
from common.yaml_document import parse
from tests.role_modules import role_module

module = role_module("preflight/library/node_machine.py")

SITE = """\
name: north
nodes:
  - {{name: first, address: 10.0.0.1, roles: [reservoir, master]}}
  - {{name: second, address: 10.0.0.2, roles: [worker], agent_port: 6001, {more}}}
  - {{name: third, address: 10.0.0.3, roles: [worker], agent_port: 6001}}
{site}
"""
LARGE: dict[str, Any] = {
    "cores": 64,
    "memory_mib": 512 * 1024,
    "disk_folder": "/var",
    "disk_bytes": 2 * 10**12,
    "disk_by_hand": "",
    "container": False,
    "interfaces": [{"name": "eth0", "mbps": 10_000, "up": True}, {"name": "eth1", "mbps": 10_000, "up": True}],
    "hcas": [],
    "gpus": 8,
    "driver": "535.261.03",
    "missing_capabilities": [],
    "apparmor": True,
    "apparmor_parser": True,
    "selinux": "",
    "kernel": "6.1.0-40-amd64",
    "hostname": "second",
    "machine_id": "3d1219c7c4c5404aaa1f6d2a48adfda4",
    "carrier": "eth0",
    "mtu": 1500,
    "mac": "02:00:00:00:00:02",
    "claimants": [],
}


def site(more: str = "gpus: {count: 8}", rest: str = "") -> Site:
    return load(parse(SITE.format(more=more, site=rest), "site.yml"))


def states(more: str = "gpus: {count: 8}", rest: str = "", name: str = "second", **machine: Any) -> dict[str, str]:
    """What is not well of a node that is large but for `machine`: state by what it is about."""
    described = site(more, rest)
    node = next(node for node in described.nodes if node.name == name)
    found = list(needs.judge(described, node, LARGE | machine))
    assert all(check.evidence for check in found)
    assert all(bool(check.hint) == (check.state != "ok") for check in found)
    return {check.id: str(check.state) for check in found if check.state != "ok"}


def test_a_large_machine_is_well() -> None:
    assert states() == {}
    assert states(name="first") == {}


def test_docker_can_wait_for_a_disk_that_systemd_mounts_alone() -> None:
    there = "docker_root: /data/docker"
    assert states(there) == {}
    assert states(there, disk_by_hand="/data") == {"disk.mount": "warn"}
    assert states(disk_by_hand="/var") == {}, "nobody chose where it lies"


@pytest.mark.parametrize(
    ("folder", "fstab", "unit", "by_hand"),
    [
        ("/data-1/docker", "", "", "/data-1"),
        ("/data-1/docker", "# UUID=1 /data-1 ext4 defaults\nUUID=1 /data ext4 defaults 0 2\n", "", "/data-1"),
        ("/data-1/docker", "UUID=1 /data-1/ ext4 defaults 0 2\n", "", ""),
        ("/data-1/docker", "", "etc/systemd/system/data\\x2d1.mount", ""),
        ("/data-1/ssd/docker", "", "run/systemd/generator/data\\x2d1-ssd.mount", ""),
        ("/data-1/ssd/docker", "", "etc/systemd/system/data\\x2d1.mount", "/data-1/ssd"),
        ("/data/docker", "", "", ""),
        ("/tank/docker", "", "", ""),
    ],
)
def test_a_node_says_what_was_mounted_by_hand(tmp_path: Path, folder: str, fstab: str, unit: str, by_hand: str) -> None:
    for path, text in (
        (
            "proc/mounts",
            "/dev/a / ext4 rw 0 0\n/dev/b /data-1 xfs rw 0 0\n/dev/c /data-1/ssd xfs rw\ntank /tank zfs rw\n",
        ),
        ("etc/fstab", fstab),
        (unit or "etc/empty", ""),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert module.mounted_by_hand(folder, tmp_path) == by_hand


def link(mbps: int | None, *, up: bool = True) -> dict[str, Any]:
    return {"interfaces": [{"name": "eth0", "mbps": mbps, "up": up}]}


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ({"disk_bytes": 450 * 10**9}, {}),
        ({"disk_bytes": 449 * 10**9}, {"disk.size": "fail"}),
        ({"disk_bytes": 100 * 10**9, "container": True}, {"disk.size": "warn"}),
        ({"cores": 3}, {"size": "warn"}),
        ({"memory_mib": 16 * 1024}, {"size": "warn"}),
        ({"memory_mib": 31 * 1024}, {}),
        (link(10_000), {}),
        (link(9_999), {"network.training": "warn"}),
        (link(1_000), {"network.training": "warn"}),
        (link(999), {"network.training": "warn", "network.commands": "warn"}),
        (link(None), {}),
        (link(100, up=False), {}),
        ({"driver": "418.00"}, {"driver": "fail"}),
        ({"driver": "430.39"}, {"driver": "fail"}),
        ({"driver": "430.40"}, {"driver": "warn"}),
        ({"driver": "470.256.02"}, {}),
        ({"driver": ""}, {"driver": "warn"}),
        ({"driver": "", "gpus": 0}, {"gpus": "warn"}),
        ({"gpus": 7}, {"gpus": "warn"}),
        ({"kernel": "5.2.21"}, {"kernel": "fail"}),
        ({"kernel": "5.3.0-76-generic"}, {}),
        ({"kernel": "4.18.0-553.el8_10.x86_64"}, {"kernel": "fail"}),
        ({"missing_capabilities": ["CAP_SYS_PTRACE"]}, {"capabilities": "fail"}),
        ({"apparmor_parser": False}, {"apparmor": "warn"}),
        ({"apparmor_parser": False, "container": True}, {}),
        ({"apparmor_parser": False, "apparmor": False}, {}),
        ({"selinux": "permissive"}, {}),
        ({"selinux": "enforcing"}, {"selinux": "warn"}),
    ],
)
def test_needs_at_their_borders(machine: dict[str, Any], expected: dict[str, str]) -> None:
    assert states(**machine) == expected


def test_a_site_says_how_large_disks_are() -> None:
    small: dict[str, Any] = {"disk_bytes": 100 * 10**9}
    assert states(rest="deploy: {disk_gb: 100}", **small) == {}
    assert states(rest="deploy: {disk_gb: 112}", **small) == {"disk.size": "fail"}
    assert states(name="first", **small) == {}, "a master keeps no data of sessions"


def test_the_driver_that_a_deploy_installs_need_not_be_there() -> None:
    assert states("driver: {branch: 535}", driver="", gpus=8) == {}
    assert states("driver: {source: preinstalled}", driver="418.00", gpus=8) == {"driver": "fail"}


def hca(gbps: float, link: str = "InfiniBand") -> dict[str, Any]:
    return {"name": "mlx5_0:1", "gbps": gbps, "link": link}


def test_a_node_that_has_an_address_on_infiniband_has_a_fast_port() -> None:
    said = "ib_address: 10.1.0.2"
    assert states(said) == {"infiniband": "warn"}
    assert states(said, hcas=[hca(10.0)]) == {"infiniband": "warn"}
    assert states(said, hcas=[hca(40.0)]) == {}
    assert states(said, hcas=[hca(100.0, "Ethernet")]) == {"infiniband": "warn"}, "RoCE, which sessions do not use"
    (check,) = (
        check
        for check in needs.judge(site(said), site(said).nodes[1], LARGE | {"hcas": [hca(100.0, "Ethernet")]})
        if check.id == "infiniband"
    )
    assert check.evidence == "mlx5_0:1 100 Gb/s (RoCE, which sessions do not use)"


def test_what_fails_makes_a_node_unfit_and_what_warns_does_not() -> None:
    described = site()
    second = described.nodes[1]
    table = {"second": list(needs.judge(described, second, LARGE | {"driver": "418.00", "cores": 1}))}
    ((name, problems),) = preflight.unfit(table).items()
    assert (name, [str(each.where) for each in problems]) == ("second", ["second: driver"])
    assert "418.00 is loaded, of 430.40 at least" in problems[0].reason


def test_what_each_service_needs_adds_up() -> None:
    master, worker = sizing.needed([NodeRole.MASTER]), sizing.needed([NodeRole.WORKER])
    assert (master.cores, master.memory_gib) == (8, 16)
    assert (worker.cores, worker.memory_gib, worker.disk_gib) == (4, 32, 512)
    both = sizing.needed([NodeRole.MASTER, NodeRole.WORKER])
    assert (both.cores, both.memory_gib) == (12, 48)
    assert sizing.lacking(worker.times(2), 4, 48 * 1024) == "4 of 8 cores, 48.0 of 64 GiB memory"
    assert sizing.lacking(sizing.needed([NodeRole.STORAGE]), 1, 512) == ""


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")


def test_a_machine_is_seen_by_what_its_kernel_tells(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    write(tmp_path, "proc/meminfo", "MemTotal:       65798328 kB\nMemFree: 1 kB")
    write(tmp_path, "proc/self/status", "CapInh:\t0000000000000000\nCapBnd:\t000001ffffdfffff")
    for name, speed, state in (("lo", "", "unknown"), ("eth0", "10000", "up"), ("eth1", "-1", "down")):
        write(tmp_path, f"sys/class/net/{name}/speed", speed)
        write(tmp_path, f"sys/class/net/{name}/operstate", state)
    write(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)")
    write(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet")
    for bus, vendor, kind in (("01", "0x10de", "0x030200"), ("02", "0x10de", "0x068000"), ("03", "0x8086", "0x030000")):
        write(tmp_path, f"sys/bus/pci/devices/0000:{bus}:00.0/vendor", vendor)
        write(tmp_path, f"sys/bus/pci/devices/0000:{bus}:00.0/class", kind)
    write(tmp_path, "sys/module/nvidia/version", "535.261.03")
    write(tmp_path, "proc/sys/kernel/osrelease", "6.1.0-40-amd64")
    write(tmp_path, "sys/module/apparmor/parameters/enabled", "Y")
    write(tmp_path, "usr/sbin/apparmor_parser", "")
    write(tmp_path, "sys/fs/selinux/enforce", "1")
    found = module.look(tmp_path)
    assert (found["apparmor"], found["apparmor_parser"], found["selinux"]) == (True, True, "enforcing")
    assert found["cores"] >= 1
    assert found["memory_mib"] == 64256
    assert found["disk_bytes"] > 0
    assert not found["container"]
    assert found["interfaces"] == [
        {"name": "eth0", "mbps": 10000, "up": True},
        {"name": "eth1", "mbps": None, "up": False},
    ]
    assert found["hcas"] == [{"name": "mlx5_0:1", "gbps": 100.0, "link": "Ethernet"}]
    assert (found["gpus"], found["driver"]) == (1, "535.261.03")
    assert found["missing_capabilities"] == ["CAP_SYS_ADMIN"]
    assert found["kernel"] == "6.1.0-40-amd64"


def test_the_disk_is_that_of_the_folder_where_docker_keeps_its_things(tmp_path: Path) -> None:
    write(tmp_path, "data/README", "")
    found = module.look(tmp_path, folder="/data/docker/not/there/yet")
    assert (found["disk_folder"], found["carrier"], found["mtu"]) == ("/data/docker/not/there/yet", "", 0)
    assert found["disk_bytes"] > 0
    described = site()
    machine = LARGE | {"disk_folder": "/data/docker", "disk_bytes": 10**11}
    (disk,) = (check for check in needs.judge(described, described.nodes[1], machine) if check.id == "disk.size")
    assert "the file system of /data/docker has 100 GB" in disk.evidence


def test_this_machine_tells_what_the_table_asks() -> None:
    found = module.look()
    assert found.keys() == LARGE.keys()
    assert found["memory_mib"] > 0
