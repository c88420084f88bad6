"""The search for victims of a gang on many nodes looks only at what it needs to."""

from __future__ import annotations

from typing import Any

import pytest

from api.scheduler.decide import decide
from api.scheduler.region import Node
from api.scheduler.snapshot import Snapshot
from tests.unit.api.scheduler.world import SECOND, node, on, project, runs, work

NODES, GPUS, CONTAINERS = 16, 2, 2


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The nodes that are asked how many containers would fit, once for each time."""
    asked: list[Node] = []
    fitting = Node.fitting

    def counted(self: Node, *args: Any) -> int:
        asked.append(self)
        return fitting(self, *args)

    monkeypatch.setattr(Node, "fitting", counted)
    return asked


def test_nodes_are_looked_at_only_until_there_is_room(looks: list[Node]) -> None:
    """Each step asks whether all that is left would do: mostly a few of the nodes answer that."""
    nodes = tuple(node(f"n{at:02}", GPUS) for at in range(NODES))
    running = tuple(
        runs(work(f"{each.name}-{at}", "b"), on(each.name, *[0] * at, 1), since=at)
        for each in nodes
        for at in range(GPUS)
    )
    gang = work("gang", "a", GPUS, replicas=CONTAINERS)
    projects = (project("a", GPUS * CONTAINERS), project("b", GPUS * (NODES - CONTAINERS)))
    decision = decide(Snapshot(1000 * SECOND, nodes, projects, running, (gang,)))
    assert len(decision.reclaims) == GPUS * CONTAINERS
    assert len(looks) < 2 * len(running) ** 2, "with a look at every node for each step it were thousands more"


def test_nobody_is_tried_where_not_even_all_who_may_go_would_do(looks: list[Node]) -> None:
    """On each node somebody stays: no whole one becomes free, whoever of the many others goes."""
    nodes = tuple(node(f"n{at:02}", GPUS) for at in range(NODES))
    running = [runs(work(f"{each.name}-b", "b"), on(each.name, 1)) for each in nodes]
    running += [runs(work(f"{each.name}-c", "c", preemptible=False), on(each.name, 0, 1)) for each in nodes]
    gang = work("gang", "a", GPUS, replicas=CONTAINERS, at=1000)
    projects = (project("a", GPUS * CONTAINERS), project("b", 0), project("c", NODES))
    decision = decide(Snapshot(1000 * SECOND, nodes, projects, tuple(running), (gang,)))
    assert not decision.reclaims
    assert len(looks) <= 12 * NODES
