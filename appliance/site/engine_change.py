"""The change of a site from one engine to the other, which waits until no session runs: none would keep its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from appliance.site import inventory, playbook
from appliance.site.departure import NODES, named
from appliance.site.model import Site
from appliance.site.slurm import Engine
from common.errors import ConflictError, Problem

SHOWN = 20
"""So many sessions are named at most."""


def require_idle(site: Site, state: Path, run: Callable[..., playbook.Result]) -> None:
    """Raise ConflictError that names the sessions which run under another engine than the site is to have.

    `run` runs a playbook on an inventory. Where the engine stays, nobody is asked.
    """
    others = sorted(installed(site, state) - {site.engine})
    if not others:
        return
    hosts = inventory.build(site, version="", state=str(state))
    # with no worker named all nodes are looked at, and a check closes none
    hosts["all"]["vars"]["site_agents"] = []
    result = run("departure", hosts, publish=[NODES], check=True)
    result.require_success()
    nodes = result.published.get(site.master.name, {}).get(NODES, [])
    sessions = sorted({named(session) for node in nodes for session in node["sessions"]})
    if not sessions:
        return
    more = f", and {len(sessions) - SHOWN} more" if len(sessions) > SHOWN else ""
    problem = Problem(
        "engine",
        f"the site has {others[0]}, and {len(sessions)} sessions run: {', '.join(sessions[:SHOWN])}{more}",
        f"drain all workers (`penstock node drain NAME`), deploy when nothing runs, and activate them again"
        f" (`penstock node activate NAME`); or write `engine: {others[0]}`",
    )
    raise ConflictError.of([problem])


def installed(site: Site, state: Path) -> set[Engine]:
    """Return the engine that deploys brought to the master; both where one that changed it did not come to its end."""
    found: set[Engine] = set()
    for path in sorted((state / "deploys").glob("*.json"), reverse=True):
        record = json.loads(path.read_text(encoding="utf-8"))
        # releases before this one knew no other
        engine = record.get("engine", Engine.DIRECT)
        if engine:
            found.add(Engine(engine))
        if engine and site.master.name in record.get("reached", ()):
            break
    return found
