"""Health of nodes without an agent, as their module sees it and the controller judges it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from appliance.site import playbook
from appliance.site.model import Site
from appliance.site.node_health import SEEN, NodeHealth
from appliance.site.playbook import Event, Outcome, Result
from tests.role_modules import role_module

module = role_module("health/library/node_health.py")
SITE = Site.model_validate(
    {
        "name": "s",
        "nodes": [
            {"name": "r1", "address": "10.0.0.1", "roles": ["reservoir"]},
            {"name": "m1", "address": "10.0.0.2", "roles": ["master"]},
            {"name": "s1", "address": "10.0.0.3", "roles": ["storage"]},
            {"name": "w1", "address": "10.0.0.4", "roles": ["worker", "storage"], "agent_port": 6001},
        ],
    }
)
SHOWN = "Id=chrony.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
WELL: Mapping[str, Any] = {
    "disks": {"/": [40.0, 10.0], "/var/lib/penstock": [40.0, 10.0]},
    "memory": "MemTotal: 100 kB\nMemAvailable: 50 kB\n",
    "clock": {"tracking": "0A,10.0.0.2,11,1,0,0,0,0,0,0,0,0,64,Normal", "problem": ""},
    "units": {"shown": SHOWN, "hung": ""},
    "certificates": {"/pki/node.crt": time.time() + 300 * 86400, "/pki/ca.crt": None},
}


@dataclass
class Nodes:
    """What Ansible gets from the nodes; one that is silent does not answer."""

    said: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    silent: str = ""

    def run(self, name: str, hosts: dict[str, Any], *, state: Path, **_: Any) -> Result:
        assert (name, state.name) == ("health", "health")
        result = Result(name, log=state)
        for node in hosts["all"]["children"]["health"]["hosts"]:
            if node == self.silent:
                result.failures.append(Event("Health", node, "Look", Outcome.UNREACHABLE, "no route to host"))
            else:
                result.published[node] = {SEEN: self.said.get(node, WELL)}
        return result


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes()
    monkeypatch.setattr(playbook, "run", made.run)
    return made


@pytest.fixture
def health(nodes: Nodes, tmp_path: Path) -> NodeHealth:
    return NodeHealth(state=tmp_path, backups=tmp_path / "backup")


def looked(health: NodeHealth, moment: float = 0) -> dict[tuple[str, str, str], tuple[str, str]]:
    return {
        (told.node, check.id, check.thing): (check.state, check.evidence)
        for told in health.look(SITE, moment)
        for check in told.checks
    }


def test_nodes_without_an_agent_are_looked_at_and_the_backups(health: NodeHealth) -> None:
    found = looked(health)
    assert {node for node, _, _ in found} == {"", "r1", "m1", "s1"}, "agents look at the others"
    assert found["", "backup.age", ""] == ("warn", "there is no good backup")
    of_storage = {(check, thing): state for (node, check, thing), (state, _) in found.items() if node == "s1"}
    assert of_storage == {
        ("answers", ""): "ok",
        ("disk", "/"): "ok",
        ("disk", "/var/lib/penstock"): "ok",
        ("memory", ""): "ok",
        ("clock", ""): "ok",
        ("service", "chrony.service"): "ok",
        ("certificate", "/pki/node.crt"): "ok",
    }
    of_master = {(check, thing) for node, check, thing in found if node == "m1"}
    assert of_storage.keys() - of_master == {("disk", "/"), ("memory", "")}, "the leader of the API sees these sooner"


def test_what_is_bad_is_so_by_the_bounds_of_the_site(health: NodeHealth, nodes: Nodes) -> None:
    shown = SHOWN.replace("=active", "=failed").replace("running", "failed")
    bad = {
        "disks": {"/": [90.0, 10.0], "/srv": [20.0, 96.0]},
        "memory": "MemTotal: 100 kB\nMemAvailable: 1 kB\n",
        "clock": {"tracking": "", "problem": "506 Cannot talk to daemon"},
        "units": {"shown": shown, "hung": ""},
        "certificates": {"/pki/node.crt": time.time() + 86400, "/pki/ca.crt": time.time() + 20 * 86400},
    }
    nodes.said["s1"] = bad
    found = looked(health)
    assert [found["s1", "disk", folder][0] for folder in ("/", "/srv")] == ["warn", "fail"]
    assert found["s1", "memory", ""][0] == "fail"
    assert found["s1", "clock", ""] == ("fail", "chrony does not answer: 506 Cannot talk to daemon")
    assert found["s1", "service", "chrony.service"] == ("fail", "failed (failed)")
    assert found["s1", "certificate", "/pki/node.crt"][0] == "fail"
    assert found["s1", "authority", "/pki/ca.crt"][0] == "warn"


def test_no_repair_is_named_which_only_nodes_with_an_agent_have(health: NodeHealth, nodes: Nodes) -> None:
    nodes.said["s1"] = {**WELL, "units": {"shown": SHOWN.replace("=active", "=failed"), "hung": ""}}
    looked(health)
    told = [check for node in health.look(SITE, 60.0) for check in node.checks]
    assert {check.repair for check in told} == {""}
    assert any(check.id == "service" and check.state == "fail" for check in told)


def test_a_service_that_hung_twice_within_an_hour_fails_though_it_runs(health: NodeHealth, nodes: Nodes) -> None:
    for hung, state in (("chrony.service", "ok"), ("chrony.service\nother.service\nchrony.service", "fail")):
        nodes.said["s1"] = {**WELL, "units": {"shown": SHOWN, "hung": hung}}
        looked(health)
        assert looked(health)["s1", "service", "chrony.service"][0] == state
    assert looked(health)["s1", "service", "chrony.service"][1] == "active (running), hung 2 times within an hour"


def test_one_bad_look_is_none_and_a_node_that_does_not_answer_fails(health: NodeHealth, nodes: Nodes) -> None:
    looked(health)
    nodes.silent = "s1"
    assert looked(health)["s1", "answers", ""][0] == "ok"
    found = looked(health)
    assert found["s1", "answers", ""] == ("fail", "no route to host")
    assert found["s1", "clock", ""] == ("unknown", "it was there, and is not found any more")
    assert found["m1", "answers", ""][0] == "ok"


def test_the_module_sees_a_real_machine(tmp_path: Path) -> None:
    said = {"chronyc": (1, ""), "systemctl": (0, SHOWN), "journalctl": (0, ""), "openssl": (1, "no such file")}
    options = {"units": ["chrony.service"], "folders": ["/", "/none", "/"], "certificates": [str(tmp_path / "none")]}
    found = module.gather(options, lambda *command: said[command[0]])
    assert list(found["disks"]) == ["/"]
    assert all(0 <= percent <= 100 for percent in found["disks"]["/"])
    assert "MemAvailable:" in found["memory"]
    assert found["clock"] == {"tracking": "", "problem": "code 1"}
    assert found["units"] == {"shown": SHOWN, "hung": ""}
    assert found["certificates"] == {str(tmp_path / "none"): None}
