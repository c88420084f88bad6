"""What nodes say about themselves where all is well."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.unit.appliance.site.verification.evidence import CONFINED, answer, gpu, node, ways


@pytest.fixture
def evidence() -> dict[str, Any]:
    gpus = [gpu(index) for index in range(4)]
    worker = node(
        ports=[22, 6001],
        docker={"version": "20.10.24", "driver": "overlay2", "root": "/var/lib/docker", "security": CONFINED},
        penstock={"agent": "0.1.0"},
        gpu_library={"ok": True, "detail": ""},
        ways=ways(),
    )
    return {
        "master1": node(
            ports=[22, 443, 5000, 8443, 9443, 56789, 56790],
            package_sources=["file:/var/lib/penstock/reservoir/current/apt/"],
            penstock={"site": "0.1.0", "api": "0.1.0"},
            database={"ok": True, "detail": ""},
            audit={"ok": True, "detail": "/log can be written"},
            calls={name: answer(name) for name in ("console", "agent of worker1", "agent of worker2")},
            nodes={
                "ok": True,
                "detail": "",
                "nodes": [{"name": name, "state": "ready", "gpus": gpus} for name in ("worker1", "worker2")],
            },
        ),
        "worker1": worker,
        "worker2": deepcopy(worker),
        "storage1": node(ports=[22, 2049], exports={"/srv/archive": {"ok": True, "detail": ""}}),
    }


@pytest.fixture(autouse=True)
def _certificates(evidence: dict[str, Any]) -> None:
    for name, seen in evidence.items():
        seen["certificate"] = seen["certificate"] | {"name": name}
