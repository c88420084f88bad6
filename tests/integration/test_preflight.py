"""The role that looks whether a node can be installed, run by Ansible on a controller in a time zone of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.site import playbook, settings
from appliance.site.preflight import FINDINGS

ROOT = Path(__file__).parents[2]
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")))
ASKED = {
    "preflight_release": "bookworm",
    "preflight_machine": "x86_64",
    "preflight_address": "127.0.0.1",
    "preflight_disk_mib": 1,
    "preflight_clock_s": 60,
    "preflight_external": [],
}
HERE = {"ansible_connection": "local"}


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the packed one, with a playbook that runs the role alone."""
    root = tmp_path / "ansible"
    for name in ("playbooks", "inventory"):
        (root / name).mkdir(parents=True)
    (root / "roles").symlink_to(ROOT / "roles")
    play = {"name": "Look", "hosts": "all", "gather_facts": False, "roles": [{"role": "preflight", "vars": ASKED}]}
    (root / "playbooks" / "look.yml").write_text(yaml.safe_dump([play]))
    (root / "inventory" / "groups.yml").write_text("all:\n")
    (root / "ansible.cfg").write_text((ROOT / "ansible.cfg").read_text())
    monkeypatch.setattr(settings, "ansible_root", lambda: root)
    return tmp_path


def clock(tree: Path) -> dict[str, Any]:
    """What the role finds of the clock of this machine, which is controller and node here."""
    inventory = {"all": {"hosts": {"here": HERE}}}
    found = playbook.run("look", inventory, state=tree / "state", listen=lambda _: None, publish=[FINDINGS])
    found.require_success()
    findings: list[dict[str, Any]] = found.published["here"][FINDINGS]
    return next(finding for finding in findings if finding["name"] == "clock")


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/New_York"])
def test_a_clock_is_right_in_every_time_zone(tree: Path, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    assert clock(tree)["ok"]


def test_a_clock_is_right_in_the_hour_that_comes_twice(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 2026-10-25 at 01:30 UTC it is 02:30 in Berlin for the second time."""
    away = datetime(2026, 10, 25, 1, 30, tzinfo=UTC) - datetime.now(UTC)
    monkeypatch.setenv("LD_PRELOAD", str(FAKETIME))
    monkeypatch.setenv("FAKETIME", f"{away.total_seconds():+.0f}s")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert clock(tree)["ok"]
