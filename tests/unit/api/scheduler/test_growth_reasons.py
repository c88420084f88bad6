"""Why an elastic gang gets no further container, as the last look of a decision found it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.scheduler import grow
from api.scheduler.snapshot import Running, Workload
from common.sentence import Sentence
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

OUT_OF_REACH = (
    "none of the nodes that its containers reach has 1 GPU free; it may get some elsewhere once it was started again"
)


def gang(least: int = 1, most: int = 4, owner: str = "a", **more: object) -> Workload:
    return work("g", owner, 1, 0, replicas=least, min_replicas=least, max_replicas=most, **more)


def growing(*gpus: int, where: str = "n", **more: Any) -> Running:
    running = runs(gang(len(gpus)), *(on(where, *(0,) * gpu, 1) for gpu in gpus))
    return replace(running, **{"grows_at": 1, **more})


def test_nothing_is_told_of_a_gang_that_grows_as_far_as_it_may() -> None:
    world = World((node("n", 4),), (project("a", 4),), now=1)
    world.running["g"] = growing(0)
    decision = world.step()
    assert list(decision.grown["g"]) == [1, 2, 3]
    assert decision.not_grown == {}


def test_one_that_has_got_some_is_told_why_it_gets_no_more() -> None:
    world = World((node("n", 2),), (project("a", 4),), now=1)
    world.running["g"] = growing(0)
    decision = world.step()
    assert list(decision.grown["g"]) == [1]
    assert decision.not_grown == {"g": "no node has 1 GPU free; every GPU in service that it may use is in use"}
    assert isinstance(decision.not_grown["g"], Sentence)


def test_its_project_may_have_no_more() -> None:
    world = World((node("n", 4),), (project("a", 1, over_quota=False),), now=1)
    world.running["g"] = growing(0)
    assert world.step().not_grown == {
        "g": "a holds 1 GPU of its quota of 1 GPU and may not go beyond; stop one of its sessions, or ask for a larger "
        "quota"
    }


def test_other_work_of_its_project_waits_and_goes_first() -> None:
    world = World((node("m", 2), node("n", 2)), (project("a", 4),), now=1)
    world.running["1"] = runs(work("1", "a"), on("m", 1))
    world.running["g"] = growing(0)
    world.submit(work("large", "a", 2), work("larger", "a", 2))
    world.step()
    world.submit(work("largest", "a", 2))
    assert world.step().not_grown == {"g": "other work of a waits, and goes first"}


def test_the_nodes_that_it_reaches_have_no_room() -> None:
    world = World((node("m", 2), node("n", 1)), (project("a", 4),), now=1)
    world.running["g"] = growing(0, reach=("n",))
    assert world.step().not_grown == {"g": OUT_OF_REACH}


def test_room_that_is_reserved_for_others_is_told_as_that() -> None:
    world = World((node("m", 1), node("n", 4)), (project("a", 0, weight=1), project("b", 4)), now=100)
    world.running["1"] = runs(work("1", "a", 2, preemptible=False), on("n", 1, 1))
    world.running["g"] = growing(0, where="m")
    world.submit(work("large", "b", 4))
    assert world.step().not_grown == {
        "g": "the room that is free is kept for a session of another project, served first"
    }


@pytest.mark.parametrize(
    "more", [{"grows_at": 10**18}, {"grows_at": 0}, {"leaving": (0,)}, {"terminating": True}], ids=str
)
def test_nothing_is_told_of_one_whose_time_to_grow_has_not_come(more: dict[str, Any]) -> None:
    world = World((node("n", 1),), (project("a", 4),), now=1)
    world.running["g"] = growing(0, **more)
    assert world.step().not_grown == {}


def test_one_that_has_its_turn_in_the_next_decision_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grow, "MOST", 1)
    world = World((node("n", 4),), (project("a", 4),), now=1)
    world.running["g"] = growing(0)
    assert world.step().not_grown == {}


def test_of_two_gangs_that_reach_the_same_node_the_last_one_to_look_is_told_of_its_reach_too() -> None:
    """What was free there when it was looked last has gone to one of them; elsewhere there is room."""
    world = World((node("m", 8), node("n", 3)), (project("a", 20),), now=1)
    world.running["g"] = growing(0, reach=("n",))
    other = replace(growing(1, reach=("n",)), workload=replace(gang(), id="h", name="h"))
    world.running["h"] = other
    decision = world.step()
    assert list(decision.grown) == ["g"]
    assert decision.not_grown == dict.fromkeys("gh", OUT_OF_REACH)
