"""Titles of workloads in sentences: several are joined as people write them, and nobody hears of what is not theirs."""

from __future__ import annotations

import pytest

from api.scheduler.networks import all_taken
from api.scheduler.phrases import either, some, together
from api.scheduler.snapshot import Running
from api.scheduler.titles import names
from tests.unit.api.scheduler.world import on, runs, work


def more_of(gang: str, count: int, *, private: bool = False, owner: str = "a") -> list[Running]:
    """So many further containers of a gang."""
    item = work(gang, owner, private=private)
    return [Running(item, (on("n", 1),), 0, ranks=(at,), part_of=f"core of {gang}") for at in range(count)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["x"], "x"),
        (["x", "y"], "x and y"),
        (["x", "y", "z"], "x, y and z"),
        (["w", "x", "y", "z"], "w, x, y and 1 more"),
    ],
)
def test_several_are_joined_by_and(given: list[str], said: str) -> None:
    assert some(given, 3) == said
    assert len(given) > 3 or together(given) == said
    assert len(given) > 3 or either(given) == said.replace(" and ", " or ")


def test_those_who_are_stopped_are_joined_by_and() -> None:
    assert names([runs(work(id_, "a"), on("n", 1)) for id_ in "xy"], "a") == "x of a and y of a are"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_how_many_containers_a_gang_gives_up_is_told_to_those_alone_who_may_see_it(count: int) -> None:
    seen = "1 container of g of a is" if count == 1 else f"{count} containers of g of a are"
    assert names(more_of("g", count), "a") == seen
    assert names(more_of("g", count, private=True), "a") == "containers of a private session of a are"
    assert names(more_of("g", count, owner="b"), "a") == "containers of a session of another project are"


def test_one_network_is_no_several() -> None:
    assert all_taken(1).startswith("the network between containers of a session is taken")
    assert all_taken(2).startswith("all 2 networks between containers of a session are taken")
