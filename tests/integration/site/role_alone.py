"""One role, run by Ansible as a deploy runs it, on a machine that has nothing else of the product."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.site import inventory, playbook, settings
from appliance.site.model import Site
from appliance.site.playbook import Result
from tests.integration.reservoir.conftest import Machine
from tests.tree import ROOT


def lay_out(folder: Path, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder like the packed one, with a playbook that runs the role alone, and let it be that of the site."""
    root = folder / "ansible"
    (root / "playbooks").mkdir(parents=True)
    (root / "roles").symlink_to(ROOT / "roles")
    wiring = f"inventory/group_vars/all/{role}.yml"
    (root / wiring).parent.mkdir(parents=True)
    (root / wiring).symlink_to(ROOT / wiring)
    play = {"name": role, "hosts": "all", "gather_facts": False, "roles": [role]}
    (root / f"playbooks/{role}.yml").write_text(yaml.safe_dump([play]))
    (root / "inventory/groups.yml").write_text("all:\n")
    (root / "ansible.cfg").write_text((ROOT / "ansible.cfg").read_text())
    monkeypatch.setattr(settings, "ansible_root", lambda: root)


def deploy(machine: Machine, folder: Path, role: str, described: Mapping[str, Any], *, check: bool) -> Result:
    """Run the role on a machine that the site describes so as its worker."""
    worker = {"name": "w1", "address": "10.0.0.3", "roles": ["worker"], "agent_port": 6001, **described}
    master = {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]}
    site = Site.model_validate({"name": "north", "nodes": [master, worker]})
    known = inventory.build(site, version="1")["all"]["hosts"]["w1"]
    connection = {"ansible_connection": "community.docker.docker", "ansible_host": machine.identity}
    hosts = {"all": {"hosts": {"w1": {**known, **connection}}}}
    return playbook.run(role, hosts, state=folder / "state", listen=lambda _: None, check=check)
