"""Agents and their GPUs, as the control API lists them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from appliance.site.model import Site
from appliance.site.site_file import load
from common.yaml_document import parse
from tests.unit.appliance.site.example import EXAMPLE
from tests.unit.appliance.site.verification.evidence import bad, gpu, of, verdict


@pytest.mark.parametrize(
    ("registered", "state", "said"),
    [
        (None, "fail", "the control API does not list this node"),
        ({"state": "lost", "message": "not heard"}, "fail", "lost: not heard"),
        ({"state": "lost", "mode": "maintenance"}, "fail", "lost, maintenance"),
        ({"state": "ready", "mode": "draining"}, "warn", "ready, draining"),
        ({"state": "ready", "message": "it cannot be called"}, "warn", "ready: it cannot be called"),
        ({"state": "ready", "enforcement": "none"}, "ok", "ready; shares held by none"),
    ],
)
def test_an_agent_is_ready(
    site: Site, evidence: dict[str, Any], registered: dict[str, Any] | None, state: str, said: str
) -> None:
    nodes = evidence["master1"]["nodes"]["nodes"]
    also = [{"name": "worker2", "gpus": nodes[1]["gpus"]} | registered] if registered else []
    evidence["master1"]["nodes"]["nodes"] = [nodes[0], *also]
    found = of(verdict(site, evidence), "worker2", "agent")
    assert (found.state, found.evidence) == (state, said)
    assert bool(found.hint) is (state != "ok")


REAL = {"simulated": False}

A100 = {"count": 2, "model": "a100"}


@pytest.mark.parametrize(
    ("expected", "cards", "gpus", "state", "said"),
    [
        ({"count": 2}, 2, [gpu(0, **REAL), gpu(1, **REAL)], "ok", "2 GPUs: NVIDIA A100-SXM4-80GB"),
        ({"count": 2}, 2, [gpu(0, **REAL)], "fail", "the site file has 2; the PCI bus has 2 of NVIDIA"),
        ({"count": 8}, 0, [], "fail", "0 GPUs; the site file has 8"),
        (None, 0, [], "fail", "0 GPUs; the site file does not say that it has none"),
        ({"count": 0}, 1, [], "ok", "0 GPUs"),
        (None, 2, [gpu(0, **REAL)], "fail", "the PCI bus has 2 of NVIDIA"),
        (None, 1, [gpu(0, **REAL)], "ok", "1 GPUs"),
        (None, 1, [gpu(0, parent="GPU-7", **REAL), gpu(1, parent="GPU-7", **REAL)], "ok", "1 GPUs"),
        (A100, 2, [gpu(0, **REAL), gpu(1, **REAL)], "ok", "2 GPUs"),
        (A100, 2, [gpu(0, **REAL), gpu(1, model="T4", **REAL)], "fail", "the site file has a100, not T4"),
        (
            None,
            0,
            [gpu(0)],
            "fail",
            "1 of them simulated: NVIDIA A100-SXM4-80GB; the site file has no",
        ),
        ({"simulated": 4}, 8, [gpu(0), gpu(1), gpu(2)], "fail", "the site file has 4 simulated ones"),
        ({"simulated": 2}, 8, [gpu(0), gpu(1)], "ok", "2 GPUs, 2 of them simulated"),
        ({"simulated": 1}, 8, [gpu(0, **REAL)], "fail", "the site file has 1 simulated ones"),
    ],
)
def test_gpus_are_those_of_the_site_file(
    evidence: dict[str, Any],
    expected: dict[str, Any] | None,
    cards: int,
    gpus: list[dict[str, Any]],
    state: str,
    said: str,
) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    worker = document["nodes"][2]
    count = (expected or {}).get("simulated")
    worker |= {"simulated_gpus": {"count": count} if count else None, "gpus": None if count else expected}
    site = load(parse(yaml.safe_dump(document), "site.yml"))
    evidence["worker2"]["pci_gpus"] = cards
    evidence["master1"]["nodes"]["nodes"][1]["gpus"] = gpus
    found = of(verdict(site, evidence), "worker2", "gpus")
    assert (found.state, said in found.evidence) == (state, True), found


def test_a_node_that_reports_and_is_no_worker_of_the_site_is_found(site: Site, evidence: dict[str, Any]) -> None:
    listed = evidence["master1"]["nodes"]["nodes"]
    listed.append({"name": "storage1", "state": "lost", "gpus": []})
    left = of(verdict(site, evidence), "master1", "strangers")
    assert (left.state, left.evidence) == ("warn", "storage1 has left and is still listed")
    assert "penstock node delete storage1" in left.hint
    assert verdict(site, evidence).ok
    listed[-1] |= {"state": "ready", "sessions": 3}
    told = "storage1 (active, 3 sessions) reports, and is no worker of the site"
    assert bad(site, evidence) == [("master1", "agents are those of the site's workers", told)]
