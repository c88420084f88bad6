"""What could never run: known by signature, and for no more of them than are kept."""

from __future__ import annotations

import pytest

from api.scheduler import feasibility
from api.scheduler.cluster import ClusterState
from api.scheduler.feasibility import Feasibility
from tests.unit.api.scheduler.world import node, work


def test_no_more_signatures_are_kept_than_are_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feasibility, "KNOWN", 3)
    known = Feasibility(ClusterState((node("n1", gpus=2),)))
    told = [bool(known.never_fits(work("w", "p", gpus=number / 2))) for number in range(1, 9)]
    assert told == [False] * 4 + [True] * 4
    assert len(known._known) <= 3
    assert not known.never_fits(work("w", "p", gpus=0.5)), "what was forgotten is found again"
