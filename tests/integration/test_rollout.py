"""A deploy's way over the nodes with Ansible itself: workers that fail or do not answer, and those that all need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.site import playbook, settings
from appliance.site.model import DeploySettings
from appliance.site.preflight import FINDINGS
from appliance.site.rollout import Rollout
from appliance.site.waves import Plan
from common.errors import Problem, ProcessError

ROOT = Path(__file__).parents[2]
PREFLIGHT = """\
- name: Preflight
  hosts: preflight
  gather_facts: false
  any_errors_fatal: false
  tasks:
    - name: Ask
      ansible.builtin.ping:
    - name: Find
      ansible.builtin.debug: {var: penstock_findings}
"""
NODES = """\
- name: Every node
  hosts: time
  gather_facts: false
  tasks:
    - name: Write a file
      ansible.builtin.copy: {content: "", dest: "{{ folder }}/{{ inventory_hostname }}.first", mode: "0600"}
      notify: Restart
    - name: Fail on one node
      ansible.builtin.command: "false"
      when: inventory_hostname in broken
  handlers:
    - name: Restart
      ansible.builtin.copy: {content: "", dest: "{{ folder }}/{{ inventory_hostname }}.restarted", mode: "0600"}
- name: Workers
  hosts: node_agent
  gather_facts: false
  tasks:
    - name: Write what the master says
      ansible.builtin.copy:
        content: "{{ hostvars['m1'].said }}"
        dest: "{{ folder }}/{{ inventory_hostname }}.second"
        mode: "0600"
"""
EDGE = """\
- name: Edge
  hosts: edge
  gather_facts: false
  tasks:
    - name: Write a file
      ansible.builtin.copy: {content: "", dest: "{{ folder }}/{{ inventory_hostname }}.edge", mode: "0600"}
"""
HERE = {"ansible_connection": "local", "penstock_findings": []}
ABSENT = {"ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_ssh_common_args": "-o ConnectTimeout=2"}
DISK = {"name": "disk", "ok": False, "reason": "1 GiB is free", "hint": "make room"}
WORKERS = ["w1", "w2", "w3", "w4"]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the packed one, with short playbooks of the same names."""
    root = tmp_path / "ansible"
    for name in ("playbooks", "roles", "inventory"):
        (root / name).mkdir(parents=True)
    for name, text in {"preflight": PREFLIGHT, "nodes": NODES, "edge": EDGE}.items():
        (root / "playbooks" / f"{name}.yml").write_text(text)
    groups = "all: {children: {preflight: , time: , node_agent: , edge: }}\n"
    (root / "inventory" / "groups.yml").write_text(groups)
    (root / "ansible.cfg").write_text((ROOT / "ansible.cfg").read_text())
    monkeypatch.setattr(settings, "ansible_root", lambda: root)
    return tmp_path


def rollout(tree: Path, *, broken: tuple[str, ...] = (), wave: int = 2, most: int = 75, **hosts: Any) -> Rollout:
    names = ["m1", *WORKERS]
    inventory = {
        "all": {
            "vars": {"folder": str(tree), "broken": broken},
            "hosts": {name: hosts.get(name, HERE) for name in names} | {"m1": HERE | {"said": "hello"}},
            "children": {
                "preflight": {"hosts": {name: {} for name in names}},
                "time": {"hosts": {name: {} for name in names}},
                "node_agent": {"hosts": {name: {} for name in WORKERS}},
                "edge": {"hosts": {"m1": {}}},
            },
        }
    }
    plan = Plan(["m1"], WORKERS, DeploySettings(wave=wave, max_fail_percentage=most))
    return Rollout(plan, inventory, partial(playbook.run, state=tree / "state", listen=lambda _: None))


def unfit(published: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Problem]]:
    """What these short playbooks find."""
    return {
        node: [Problem(f"{node}: {one['name']}", one["reason"], one["hint"]) for one in said[FINDINGS]]
        for node, said in published.items()
        if said[FINDINGS]
    }


def made(tree: Path) -> set[str]:
    return {path.name for path in tree.iterdir() if path.suffix in (".first", ".second", ".edge", ".restarted")}


def test_workers_that_fail_or_do_not_answer_are_left_out_and_caught_up(tree: Path) -> None:
    first = rollout(tree, broken=("w2",), w3=ABSENT, w4=HERE | {"penstock_findings": [DISK]})
    first.preflight(first.hosts, unfit)
    assert made(tree) == set()
    first.install()
    reasons = {name: " ".join(map(str, problems)) for name, problems in first.left_out.items()}
    assert set(reasons) == {"w2", "w3", "w4"}
    assert "Every node: Fail on one node: non-zero return code" in reasons["w2"]
    # whether the connection is refused or breaks is told by who is faster
    assert re.search("refused|Broken pipe", reasons["w3"]), reasons["w3"]
    assert "disk: 1 GiB is free. Hint: make room" in reasons["w4"]
    # who fails takes up what it has changed, and comes back in no later play
    whole = {f"{name}.{step}" for name in ("m1", "w1") for step in ("first", "restarted")}
    assert made(tree) == whole | {"m1.edge", "w1.second", "w2.first", "w2.restarted"}
    assert (tree / "w1.second").read_text() == "hello"
    assert first.reached == ["m1", "w1"]
    second = rollout(tree)
    second.preflight(second.hosts, unfit)
    second.install()
    assert (second.left_out, second.reached) == ({}, ["m1", *WORKERS])
    assert {f"{name}.second" for name in WORKERS} <= made(tree)


def test_a_wave_that_fails_as_a_whole_stops_neither_the_next_nor_the_edge(tree: Path) -> None:
    tried = rollout(tree, broken=("w1",), wave=1)
    tried.preflight(tried.hosts, unfit)
    tried.install()
    assert tried.reached == ["m1", *WORKERS[1:]]
    assert "m1.edge" in made(tree)


def test_a_release_that_breaks_workers_stops_after_its_share(tree: Path) -> None:
    tried = rollout(tree, broken=tuple(WORKERS), wave=1, most=50)
    tried.preflight(tried.hosts, unfit)
    with pytest.raises(ProcessError, match="3 of 4 workers cannot be deployed, and 2 may be left out"):
        tried.install()
    assert set(tried.left_out) == set(WORKERS)
    assert "w4.first" not in made(tree)
    assert "m1.edge" not in made(tree)


def test_a_node_that_all_need_stops_everything(tree: Path) -> None:
    tried = rollout(tree, broken=("m1",))
    tried.preflight(tried.hosts, unfit)
    with pytest.raises(ProcessError, match="m1: Every node: Fail on one node"):
        tried.install()
    assert made(tree) == {"m1.first", "m1.restarted"}
