"""The reference scenario of quota, over-quota and reclaim (NetApp TR-4858, 4.8 to 4.10), replayed step by step."""

from __future__ import annotations

from api.scheduler.snapshot import Workload
from tests.unit.api.scheduler.world import World, node, project, work

QUOTAS = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}


def world() -> World:
    return World(
        (node("dgx1-1"), node("dgx1-2")),
        tuple(project(name, gpus) for name, gpus in QUOTAS.items()),
    )


def session(owner: str, name: str, gpus: float, at: int, *, interactive: bool = False) -> Workload:
    return work(name, owner, gpus, at, preemptible=not interactive)


def high_utilisation() -> list[Workload]:
    rows = [
        ("team-a", "a-1-1-jupyter", 1, True),
        ("team-a", "a-1-g", 1, False),
        ("team-a", "a-2-gg", 2, False),
        ("team-b", "b-1-g06", 0.6, True),
        ("team-b", "b-2-g04", 0.4, True),
        ("team-b", "b-3-g", 1, False),
        ("team-b", "b-4-gg", 2, False),
        ("team-c", "c-1-g05", 0.5, True),
        ("team-c", "c-2-g03", 0.3, True),
        ("team-c", "c-3-g02", 0.2, True),
        ("team-c", "c-4-gg", 2, False),
        ("team-c", "c-5-g", 1, False),
        ("team-d", "d-1-gggg", 4, False),
    ]
    return [session(owner, name, gpus, at, interactive=kind) for at, (owner, name, gpus, kind) in enumerate(rows)]


def gpus(world: World) -> dict[str, float]:
    return {name.removeprefix("team-"): milli / 1000 for name, milli in world.held().items()}


def pending(world: World) -> dict[str, list[str]]:
    return {name[-1]: sorted(w.id for w in world.queue.values() if w.project == name) for name in QUOTAS}


def test_all_at_once_fill_the_cluster_and_fractions_share_a_gpu() -> None:
    lab = world()
    lab.submit(*high_utilisation())
    lab.step()
    assert gpus(lab) == {"a": 4, "b": 4, "c": 4, "d": 4}
    assert not lab.queue
    shared = [{s.uuid for p in lab.running[id_].placements for s in p.shares} for id_ in ("b-1-g06", "b-2-g04")]
    assert shared[0] == shared[1], "0.6 and 0.4 are one GPU"


def test_the_whole_scenario_one_submission_after_the_other() -> None:
    lab = world()
    for workload in high_utilisation():  # 4.8 high utilisation by over-quota
        lab.submit(workload)
        assert lab.settle() == []
    assert gpus(lab) == {"a": 4, "b": 4, "c": 4, "d": 4}
    assert not lab.queue

    lab.submit(session("team-d", "d-2-gg", 2, 20))  # 4.9 fairness of the guaranteed quota
    assert lab.settle() == ["c-4-gg"], "one of two GPUs beyond a quota, the youngest of them, and no two of one"
    lab.submit(session("team-d", "d-3-gg", 2, 30))
    assert lab.settle() == ["b-4-gg"]
    assert gpus(lab) == {"a": 4, "b": 2, "c": 2, "d": 8}
    assert pending(lab) == {"a": [], "b": ["b-4-gg"], "c": ["c-4-gg"], "d": []}

    later = [("team-a", "a-3-gg"), ("team-a", "a-4-gg"), ("team-b", "b-5-gg"), ("team-c", "c-6-gg")]
    for at, (owner, name) in enumerate(later, start=40):  # 4.10 fairness of over-quota
        lab.submit(session(owner, name, 2, at))
        assert lab.settle() == [], "at its quota nobody is reclaimed, and nobody may take"
    assert gpus(lab) == {"a": 4, "b": 2, "c": 2, "d": 8}
    assert {name: len(waiting) for name, waiting in pending(lab).items()} == {"a": 2, "b": 2, "c": 2, "d": 0}

    lab.delete("d-1-gggg", "d-2-gg", "d-3-gg")  # 4.10 after team-d leaves
    assert lab.settle() == []
    assert gpus(lab) == {"a": 8, "b": 4, "c": 4, "d": 0}, "what is spare goes 4:2:2"
    assert {name: len(waiting) for name, waiting in pending(lab).items()} == {"a": 0, "b": 1, "c": 1, "d": 0}
