"""Who extends a time limit wherever nothing is reserved puts nobody off for whom something is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.snapshot import Running
from tests.unit.api.scheduler.world import SECOND, World, node, on, project, work

NOW = 10_000
GPUS = 4
SLACK_S = 3
"""So long it takes at most until what has ended is gone and the next one begins."""

MayExtend = Callable[[World, Running], bool]

worlds = st.builds(
    lambda held, replicas: (tuple(held), replicas),
    st.lists(st.tuples(st.integers(0, GPUS), st.integers(1, 20)), min_size=1, max_size=3),
    st.integers(1, 2),
)
streams = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10)), min_size=1, max_size=8)
"""The short ones of each second in turn: GPUs and time limit; one that does not start at once is gone."""


def where_nothing_is_reserved(world: World, running: Running) -> bool:
    """The rule of the API."""
    reserved = {name for id_ in world.queue for name in world.decisions[-1].reserved_on(id_)}
    return reserved.isdisjoint(place.node for place in running.placements)


def started_in_time(
    held: tuple[tuple[int, int], ...], replicas: int, stream: list[tuple[int, int]], may: MayExtend
) -> bool:
    """Let a gang wait for whole nodes among short ones that are extended as far as they may.

    Returns whether it has begun once all are gone that were there when places were reserved for it.
    """
    nodes = tuple(node(f"n{at}", GPUS) for at in range(max(len(held), replicas)))
    world = World(nodes, (project("a", 2 * GPUS), project("b", 100)), now=NOW)
    for at, (gpus, left) in enumerate(held):
        if gpus:
            workload = work(f"r{at}", "b", gpus, preemptible=False, limit_s=left)
            world.running[workload.id] = Running(workload, (on(f"n{at}", *[1] * gpus),), 0, ends_at=until(NOW + left))
    world.submit(work("large", "a", GPUS, NOW - 100, replicas=replicas))
    last = max((running.ends_at for running in world.running.values()), default=0) // SECOND
    while world.now <= max(last, NOW) + SLACK_S and "large" in world.queue:
        gpus, limit_s = stream[world.now % len(stream)]
        if gpus:
            world.submit(work(f"s{world.now}", "b", gpus, world.now, preemptible=False, limit_s=limit_s))
        world.step()
        world.queue = {id_: waiting for id_, waiting in world.queue.items() if id_ == "large"}
        for id_, running in list(world.running.items()):
            if running.ends_at and not running.terminating and may(world, running):
                world.running[id_] = replace(running, ends_at=until(world.now + running.workload.limit_s))
        world.delete(
            *[id_ for id_, running in world.running.items() if 0 < running.ends_at <= until(world.now)],
        )
    return "large" in world.running


def until(seconds: int) -> int:
    return seconds * SECOND


@given(worlds, streams)
def test_who_has_places_reserved_begins_when_their_ends_say(
    world: tuple[tuple[tuple[int, int], ...], int], stream: list[tuple[int, int]]
) -> None:
    assert started_in_time(*world, stream, where_nothing_is_reserved)


@pytest.mark.parametrize("held", [((3, 10),), ((2, 5), (3, 9))])
def test_without_the_rule_it_would_be_put_off(held: tuple[tuple[int, int], ...]) -> None:
    assert not started_in_time(held, len(held), [(1, 5)], lambda *_: True)


def test_reserved_nodes_are_named_once_each() -> None:
    world = World((node("m", 4), node("n", 4)), (project("a", 8), project("b", 8)), now=NOW)
    for name in ("m", "n"):
        world.running[name] = Running(work(name, "b", preemptible=False), (on(name, 1),), 0, ends_at=until(NOW + 9))
    world.submit(work("large", "a", 2, NOW - 100, replicas=4))
    decision = world.step()
    assert decision.reserved_on("large") == ["m", "n"]
    assert decision.reserved_on("another") == []
