"""Tables in the manner of KAI-Scheduler: nodes, projects and sessions in; placements, victims and waits out."""

from __future__ import annotations

from dataclasses import dataclass, field

from api.scheduler.decide import decide
from api.scheduler.snapshot import Cause, NodeSnapshot, ProjectState, Running, SchedulerSettings, Snapshot, Workload
from tests.unit.api.scheduler.world import SECOND, check, node, project

NOW = 1000


@dataclass(frozen=True)
class Case:
    """What is there, and what is expected of the queue: node for who is placed, cause for who waits."""

    nodes: tuple[NodeSnapshot, ...]
    projects: tuple[ProjectState, ...]
    running: tuple[Running, ...] = ()
    queue: tuple[Workload, ...] = ()
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    placed: dict[str, str] = field(default_factory=dict)
    waits: dict[str, Cause] = field(default_factory=dict)
    victims: dict[str, str] = field(default_factory=dict)


def judge(case: Case) -> None:
    snapshot = Snapshot(NOW * SECOND, case.nodes, case.projects, case.running, case.queue, case.settings)
    decision = decide(snapshot)
    check(snapshot, decision)
    assert {id_: places[0].node for id_, places in decision.placements.items()} == case.placed
    assert {id_: wait.cause for id_, wait in decision.pending_reasons.items()} == case.waits
    assert {reclaim.victim: reclaim.beneficiary for reclaim in decision.reclaims} == case.victims
    for_others = Snapshot(
        snapshot.now, case.nodes[::-1], case.projects[::-1], case.running[::-1], case.queue[::-1], case.settings
    )
    assert decide(for_others) == decision, "the order of the rows does not matter"


ab = (project("a", 2), project("b", 2))
four = (node("n", 4),)
