"""Judgement of workers by what the control API knows of them: agents, their GPUs, and who is no worker. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from appliance.site.model import Node, NodeRole, Site
from appliance.site.seen import NotGatheredError, Seen
from common.checks import Check, CheckState

Registered = Mapping[str, Any]


def listed(master: Seen) -> Mapping[str, Registered]:
    """Return the nodes that the control API lists, by name; raises NotGatheredError where it could not be asked."""
    asked = master["nodes"]
    if not asked["ok"]:
        raise NotGatheredError(f"the control API does not list its nodes: {asked['detail']}")
    return {node["name"]: node for node in asked["nodes"]}


def models_of(gpus: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the models of a node's GPUs as its agent tells of them; slices of one GPU name it, and are one."""
    return {gpu["parent"] or gpu["uuid"]: gpu["model"] for gpu in gpus}


def agent(node: Node, master: Seen) -> Iterator[Check]:
    """Judge whether a worker's agent reports, and what the API says of it."""
    name = "agent is registered and ready"
    hint = f"look at `journalctl -u penstock-agent` on {node.name}"
    found = listed(master).get(node.name)
    if found is None:
        yield Check.of("agent", name, ok=False, evidence="the control API does not list this node", hint=hint)
        return
    mode, message = found.get("mode", "active"), found.get("message", "")
    said = found["state"] + (f", {mode}" if mode != "active" else "") + (f": {message}" if message else "")
    if enforcement := found.get("enforcement"):
        said += f"; shares held by {enforcement}"
    if found["state"] != "ready":
        yield Check.of("agent", name, ok=False, evidence=said, hint=hint)
    elif mode != "active":
        back = f"`penstock node activate {node.name}` lets it take sessions again"
        yield Check("agent", name, CheckState.WARN, said, back)
    else:
        yield Check("agent", name, CheckState.WARN if message else CheckState.OK, said, hint if message else "")


def gpus(node: Node, seen: Seen, master: Seen) -> Iterator[Check]:
    """Judge whether a worker has the GPUs that the site file says, and all that the machine has."""
    found = listed(master).get(node.name)
    if found is None:
        raise NotGatheredError("the control API does not list this node")
    models = models_of(found["gpus"])
    simulated = sum(gpu["simulated"] for gpu in found["gpus"])
    said = f"{len(models)} GPUs" + (f", {simulated} of them simulated" if simulated else "")
    if models:
        said += f": {', '.join(sorted(set(models.values())))}"
    cards = 0 if node.simulated_gpus or node.kubernetes else seen["pci_gpus"]
    problems = list(_problems(node, models, simulated, cards))
    yield Check.of(
        *("gpus", "GPUs are those of the site file"),
        ok=not problems,
        evidence="; ".join([said, *problems]),
        hint=(
            f"look at `nvidia-smi` and `journalctl -u penstock-agent` on {node.name}; correct its `gpus` in the site"
            " file where they are as they should be, `gpus: {count: 0}` for a worker without any"
        ),
    )


def _problems(node: Node, models: Mapping[str, str], simulated: int, cards: int) -> Iterator[str]:
    if node.simulated_gpus:
        if not len(models) == simulated == node.simulated_gpus.count:
            yield f"the site file has {node.simulated_gpus.count} simulated ones"
        return
    if simulated:
        yield "the site file has no simulated ones"
    if node.gpus is None and not models:
        yield "the site file does not say that it has none"
    if node.gpus is not None and len(models) != node.gpus.count:
        yield f"the site file has {node.gpus.count}"
    if node.gpus is not None and (words := node.gpus.model or ""):
        others = sorted({model for model in models.values() if words.lower() not in model.lower()})
        if others:
            yield f"the site file has {words}, not {', '.join(others)}"
    if cards > len(models) and (node.gpus is None or node.gpus.count):
        yield f"the PCI bus has {cards} of NVIDIA"


def strangers(site: Site, master: Seen) -> Iterator[Check]:
    """Find nodes that the API has and the site has not; one that is lost is only waiting to be deleted."""
    name = "agents are those of the site's workers"
    workers = {node.name for node in site.with_role(NodeRole.WORKER)}
    others = {name: node for name, node in sorted(listed(master).items()) if name not in workers}
    alive = {name: node for name, node in others.items() if node["state"] != "lost"}
    if alive:
        told = [f"{name} ({_doing(node)})" for name, node in alive.items()]
        said = f"{', '.join(told)} reports, and is no worker of the site"
        hint = "run `penstock site deploy`: it closes the node, names what runs there, and revokes its certificate"
        yield Check("strangers", name, CheckState.FAIL, said, hint)
    elif others:
        said = f"{', '.join(others)} has left and is still listed"
        hint = f"take it off the list: {'; '.join(f'`penstock node delete {name}`' for name in others)}"
        yield Check("strangers", name, CheckState.WARN, said, hint)
    else:
        yield Check("strangers", name, CheckState.OK, "nobody else reports")


def _doing(node: Registered) -> str:
    return f"{node.get('mode', 'active')}, {node.get('sessions', 0)} sessions"
