"""Units of systemd on a worker: what one line of them is for, and no test on a node would show soon enough."""

from __future__ import annotations

import re
from configparser import RawConfigParser
from pathlib import Path

import pytest

ROLES = Path(__file__).parents[2] / "roles"
AGENT = "node_agent/templates/etc/systemd/system/penstock-agent.service.j2"
DOCKER = "container_engine/files/etc/systemd/system/docker.service.d/oom.conf"
APART = ("PrivateMounts", "PrivateTmp", "ProtectSystem", "ProtectHome", "ReadOnlyPaths", "BindPaths", "MountFlags")


def service(path: str) -> dict[str, str]:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROLES / path)
    return dict(unit["Service"])


@pytest.mark.parametrize("path", [AGENT, DOCKER])
def test_where_memory_runs_out_sessions_end_first(path: str) -> None:
    assert int(service(path)["OOMScoreAdjust"]) < 0


def test_docker_sees_what_the_agent_mounts() -> None:
    assert not set(APART) & set(service(AGENT))


LIMITS = "hardening/files/etc/systemd/system/penstock-{}.conf"
UNLIMITED = {
    "penstock-firewall": "a node is open where it does not run, and a restart would open it for a moment",
    "penstock-gpu-devices": "makes devices",
    "penstock-infiniband": "a restart takes the address away for a moment, which sessions go by",
    "penstock-mount@": "asks systemd for a mount, and ends",
    "penstock-mps@": "shares devices and memory with sessions, as no machine with GPUs has judged yet",
}
"""Units of ours that keep all they might have, and why."""


def test_each_unit_of_ours_is_kept_from_what_it_never_needs_or_has_a_reason() -> None:
    ours = {path.name.partition(".service")[0] for path in ROLES.glob("*/*/etc/systemd/system/penstock-*.service*")}
    wanted = (ROLES.parent / "inventory/group_vars/all/hardening.yml").read_text()
    limited = {unit for unit in ours if f"'{unit}.service'" in wanted}
    assert ours - limited == UNLIMITED.keys()


def capabilities(kind: str) -> set[str]:
    text = (ROLES / LIMITS.format(kind)).read_text()
    return {name for line in re.findall(r"^CapabilityBoundingSet=(.*)", text, re.MULTILINE) for name in line.split()}


def test_the_controller_may_read_all_and_change_little() -> None:
    assert capabilities("controller") == {"CAP_DAC_OVERRIDE"}
    limits = service(LIMITS.format("controller"))
    # SSH has root's keys from there
    assert limits["ProtectHome"] == "read-only"


def test_the_nfs_server_sees_the_node_as_it_is_and_keeps_the_bits_of_groups() -> None:
    limits = service(LIMITS.format("nfs-server"))
    assert not {*APART, "PrivateDevices", "RestrictSUIDSGID"} & set(limits)
    assert {"CAP_DAC_READ_SEARCH", "CAP_SETUID", "CAP_CHOWN"} <= capabilities("nfs-server")
    assert not {"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_MODULE", "CAP_SYS_PTRACE"} & capabilities("nfs-server")


def test_playbooks_become_other_users_and_install_packages() -> None:
    limits = service(LIMITS.format("playbooks"))
    assert not {*APART, "PrivateDevices", "RestrictSUIDSGID"} & set(limits)
    # PAM says to the kernel who has become whom, and refuses where it may not
    kept_away = {name.removeprefix("~") for name in capabilities("playbooks")}
    assert not {"CAP_AUDIT_WRITE", "CAP_SETUID", "CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_CHOWN"} & kept_away


def test_playbooks_reach_by_all_ways_that_modules_of_roles_take() -> None:
    """On the machine that they run on, modules run within the limits of the unit."""
    taken = {name for path in ROLES.glob("*/library/*.py") for name in re.findall(r"\bAF_[A-Z0-9]+", path.read_text())}
    assert "AF_PACKET" in taken
    assert taken <= set(service(LIMITS.format("playbooks"))["RestrictAddressFamilies"].split())


def test_what_a_unit_keeps_away_by_itself_no_drop_in_gives_back() -> None:
    """Its `ProtectSystem=full` would take the place of a unit's own `strict`, which DynamicUser= is, too."""
    own = {
        path.name.partition(".service")[0]
        for path in ROLES.glob("*/*/etc/systemd/system/penstock-*.service*")
        if re.search(r"^(ProtectSystem=strict|DynamicUser=true)$", path.read_text(), re.MULTILINE)
    }
    wanted = (ROLES.parent / "inventory/group_vars/all/hardening.yml").read_text().partition("\n  strict:")[2]
    assert set(re.findall(r"'(penstock-[\w@-]+)\.service'", wanted)) == own
    assert service(LIMITS.format("strict")) == {"ProtectSystem": "strict"}
