"""GPUs that workers are expected to have: what the first deploy that finds them writes into the site file.

A worker of which the site file says nothing is accepted as it is, once its agent tells of as many GPUs as the machine
has cards. From then on `site verify` and health tell of one that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from appliance.site import playbook
from appliance.site.agent_checks import models_of
from appliance.site.groups import ATTACHMENT
from appliance.site.model import NodeRole, Site
from appliance.site.preflight import MACHINE

FOUND = "attachment_found"
WAIT_S = 60
"""So long at most agents may take to tell of their GPUs."""

Expected = dict[str, dict[str, Any]]
"""What the site file says of GPUs, by the names of nodes."""


def found(
    site: Site,
    reached: Collection[str],
    told: Mapping[str, Mapping[str, Any]],
    hosts: Mapping[str, Any],
    run: Callable[..., playbook.Result],
) -> Expected:
    """Return what to write of the workers that were `reached`, of which the site file says nothing.

    `told` is what nodes published at preflight, and `run` runs a playbook on an inventory such as `hosts`. What cannot
    be asked now is left to the next deploy.
    """
    cards = {name: told[name][MACHINE]["gpus"] for name in _unsaid(site) if MACHINE in told.get(name, {})}
    waited = [name for name in reached if cards.get(name)]
    if not waited:
        return {}
    everything = hosts["all"]
    variables = {**everything["vars"], "nodes_joining": waited, "attachment_wait_s": WAIT_S}
    children = {**everything["children"], ATTACHMENT: {"hosts": {site.master.name: {}}}}
    asked = {"all": {**everything, "vars": variables, "children": children}}
    result = run(ATTACHMENT, asked, publish=[FOUND], check=True)
    said = result.published.get(site.master.name, {}).get(FOUND, {"nodes": []})
    nodes = {node["name"]: node["gpus"] for node in said["nodes"] if node["state"] == "ready"}
    return {name: _expected(nodes[name]) for name in waited if name in nodes and _are_all(nodes[name], cards[name])}


def _unsaid(site: Site) -> Iterator[str]:
    for node in site.with_role(NodeRole.WORKER):
        if node.gpus is None and node.simulated_gpus is None and node.kubernetes is None:
            yield node.name


def _are_all(gpus: list[dict[str, Any]], cards: int) -> bool:
    return len(models_of(gpus)) == cards and not any(gpu["simulated"] for gpu in gpus)


def _expected(gpus: list[dict[str, Any]]) -> dict[str, Any]:
    """Return their count, and the model where all have the same; slices say theirs, not that of their GPU."""
    models = {"" if gpu["parent"] else gpu["model"] for gpu in gpus}
    model = models.pop() if len(models) == 1 else ""
    return {"count": len(models_of(gpus))} | ({"model": model} if model else {})
