"""Nodes that leave a site: they take nothing new, and are refused only when nothing runs on them any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.site import inventory, playbook
from appliance.site.model import NodeRole, Site
from common.errors import ConflictError, Problem

NODES = "departure_nodes"


def left(site: Site, state: Path) -> list[str]:
    """Return the names of nodes that a deploy before made workers, or gave a certificate, and that the site has not."""
    stay = {node.name for node in site.with_role(NodeRole.WORKER)}
    certified = {path.name for path in (state / "pki" / "nodes").glob("*")} - {node.name for node in site.nodes}
    return sorted((_former_workers(state) | certified) - stay)


def close(site: Site, state: Path, run: Callable[..., playbook.Result], *, check: bool = False) -> list[str]:
    """Close nodes that report and have left, and return their names; raises ConflictError while something runs there.

    `run` runs a playbook on an inventory. A `check` closes none. Where nobody has left, nobody is asked.
    """
    if not left(site, state):
        return []
    hosts = inventory.build(site, version="", state=str(state))
    result = run("departure", hosts, publish=[NODES], check=check)
    result.require_success()
    nodes = result.published.get(site.master.name, {}).get(NODES, [])
    problems = [_problem(node, check=check) for node in nodes if node["sessions"]]
    if problems:
        raise ConflictError.of(problems)
    return [node["name"] for node in nodes]


def named(session: dict[str, str]) -> str:
    """Return how a session is named to an administrator."""
    return f"{session['name']} of {session['user']} (project {session['project']})"


def _former_workers(state: Path) -> set[str]:
    """Return the workers of the last deploy that succeeded and noted them."""
    for path in sorted((state / "deploys").glob("*.json"), reverse=True):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["ok"] and record.get("workers"):
            return set(record["workers"])
    return set()


def _problem(node: dict[str, Any], *, check: bool) -> Problem:
    name = node["name"]
    sessions = ", ".join(map(named, node["sessions"]))
    closed = "" if check else "; it takes nothing new from now on"
    return Problem(
        name,
        f"it has left the site file, and {len(node['sessions'])} sessions run on it: {sessions}{closed}",
        f"run `penstock node drain {name}`, which moves trainings and warns people, and deploy again when it is empty;"
        f" or put it back into the site file and run `penstock node activate {name}`",
    )
