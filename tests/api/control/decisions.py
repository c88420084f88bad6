"""The scheduler's loop of a cluster, and how often it decides."""

from __future__ import annotations

from typing import Any

import pytest

from api.control.loop import Loop
from api.scheduler.planner import Planner
from tests.api.cluster import Cluster


def loop_of(cluster: Cluster) -> Loop:
    return cluster.manager.loop


def count_decisions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often it is decided."""
    decided: list[int] = []
    decide = Planner.decide

    def counting(self: Planner, queue: Any, *args: Any, **more: Any) -> Any:
        decided.append(len(queue))
        return decide(self, queue, *args, **more)

    monkeypatch.setattr(Planner, "decide", counting)
    return decided
