"""Searches for victims have a budget: who is left out has its turn soon, and the order stays what it was."""

from __future__ import annotations

from typing import Any

import pytest

from api.scheduler.decide import decide
from api.scheduler.snapshot import Workload
from api.scheduler.victim_search import cheapest
from tests.unit.api.scheduler.random_worlds import RandomWorld, numbers
from tests.unit.api.scheduler.truth import check_reasons
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

MANY = 12


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For whom victims are looked for, with a budget of one search for the first, and one for those left out."""
    found: list[str] = []

    def noted(cluster: Any, residents: Any, workload: Workload, *args: Any) -> Any:
        found.append(workload.id)
        return cheapest(cluster, residents, workload, *args)

    monkeypatch.setattr("api.scheduler.turns.STEPS", 2)
    monkeypatch.setattr("api.scheduler.reclaim.cheapest", noted)
    return found


def crowd() -> World:
    """All but the last ask in vain: each by its own priority, for two GPUs of a node on which one cannot be taken."""
    world = World((node("n1", 2), node("n2", 1)), (project("owner", 3),), now=1000)
    world.running["fixed"] = runs(work("fixed", "owner", preemptible=False), on("n1", 1))
    world.running["low"] = runs(work("low", "owner"), on("n1", 0, 1))
    world.running["other"] = runs(work("other", "owner"), on("n2", 1))
    world.submit(*(work(f"w{at:02}", "owner", 2, 1000, priority=90 - at) for at in range(MANY)))
    world.submit(work("last", "owner", 1, 1000, priority=60))
    return world


def test_a_decision_looks_for_the_victims_of_few(searches: list[str]) -> None:
    decision = crowd().step()
    assert set(searches) == {"w00"}
    assert decision.left_out == (*(f"w{at:02}" for at in range(1, MANY)), "last")


def test_those_left_out_have_their_turn_one_after_another_and_the_first_in_each(searches: list[str]) -> None:
    world = crowd()
    for turn in range(1, MANY):
        world.step()
        searches.clear()
        decision = decide(world.snapshot())
        assert set(searches) == {"w00", f"w{turn:02}"}
        assert not decision.reclaims
    world.step()
    assert {each.beneficiary for each in world.step().reclaims} == {"last"}


def test_who_comes_while_a_round_goes_on_waits_for_the_next_one(searches: list[str]) -> None:
    """Those who come first in the order by their priority do not keep the others waiting."""
    world = crowd()
    for turn in range(MANY + 2):
        world.submit(work(f"x{turn:02}", "owner", 2, 1000, priority=100 + turn))
        if any(each.beneficiary == "last" for each in world.step().reclaims):
            return
    raise AssertionError(f"starved: {searches}")


def test_a_round_that_is_over_begins_again_with_all_who_had_no_turn_in_its_last_decision(searches: list[str]) -> None:
    world = crowd()
    del world.queue["last"]
    first = world.step().left_out
    for _ in range(MANY - 2):
        assert set(world.step().left_out) < set(first)
    assert set(world.step().left_out) == {f"w{at:02}" for at in range(1, MANY - 1)}
    assert searches.count("w00") == MANY * searches.count("w05")


def test_who_is_left_out_keeps_the_places_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World((node("n1", 2), node("n2", 2)), (project("owner", 4), project("other", 0)), now=1000)
    world.running["fixed"] = runs(work("fixed", "other", 1, preemptible=False), on("n1", 1))
    world.running["guest"] = runs(work("guest", "other", 2, preemptible=False), on("n2", 1, 1))
    world.submit(work("w", "owner", 2))
    kept = world.step().reservations
    assert set(kept) == {"w"}
    world.running["low"] = runs(work("low", "owner", 1, priority=10), on("n1", 0, 1))
    monkeypatch.setattr("api.scheduler.turns.STEPS", 0)
    decision = world.step()
    assert decision.left_out == ("w",)
    assert decision.reservations == kept


def test_why_one_waits_that_is_left_out_is_so(searches: list[str]) -> None:
    snapshot = crowd().snapshot()
    decision = decide(snapshot)
    check_reasons(snapshot, decision)
    assert decision.pending_reasons["last"].reason.startswith(
        "no node has 1 GPU free; every GPU in service that it may use is in use"
    )
    assert "last" not in searches


@pytest.mark.usefixtures("searches")
@pytest.mark.parametrize("part", range(10))
def test_worlds_with_few_turns(part: int) -> None:
    """Whatever a decision leaves out the next ones do: all that holds in other worlds holds here."""
    for number in numbers(part, 10, many=30, few=10):
        world = RandomWorld(number)
        world.patience = 4
        world.run()
