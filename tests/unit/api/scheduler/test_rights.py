"""Rights: who may have whom stopped goes by one order, so that no two, and no three, stop each other in turn."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from api.scheduler.snapshot import Bounds, NodeSnapshot, SchedulerSettings, Workload
from tests.unit.api.scheduler.world import SECOND, World, node, project, work

ONCE_EACH = 2
MANY, PARTS = 200, 4


def cores(id_: str, owner: str, cpus: int, at: int = 0, **more: object) -> Workload:
    return work(id_, owner, 0, at, cpu_milli=cpus * 1000, **more)


def test_gpus_cpus_and_a_priority_do_not_stop_each_other_in_turn() -> None:
    """`high` has the right to GPUs once `low` is gone; that `low` comes back beyond the quota takes nothing of it."""
    world = World(
        (node("n", 4, cpu_milli=4000),), (project("p", 2), project("q", 0, cpu=Bounds(4000))), SchedulerSettings()
    )
    world.submit(
        work("other", "q", 1, -20),
        work("high", "p", 1, 0, cpu_milli=500, priority=90),
        work("low", "p", 2, -9, priority=10),
        cores("cpu", "q", 4, -5),
    )
    stopped = Counter(world.settle())
    assert max(stopped.values()) < ONCE_EACH, stopped
    assert "high" in world.running


def test_who_goes_for_gpus_that_a_priority_makes_guaranteed_is_told_of_that_right() -> None:
    world = World((node("n", 4, cpu_milli=4000),), (project("p", 2), project("q", 0, cpu=Bounds(4000))))
    world.submit(work("low", "p", 2, priority=10), cores("cpu", "q", 4))
    world.step()
    world.submit(work("high", "p", 1, 1, cpu_milli=500, priority=90))
    reasons = {each.victim: each.reason for each in world.step().reclaims}
    assert reasons["cpu"] == (
        "a session of another project is within its quota of GPUs, and it runs beside them without one"
    )


def three_in_turn() -> World:
    """Any two fit: GPUs guaranteed to a low one, memory to another project, and a high one with no GPU and no right."""
    world = World(
        (node("n", 4, memory_mib=4096),),
        (project("p", 4, memory=Bounds(2048)), project("q", 0, memory=Bounds(1024))),
    )
    world.submit(work("low", "p", 4, -9, memory_mib=2048, priority=10), work("guest", "q", 0, -8, memory_mib=512))
    world.step()
    world.submit(work("high", "p", 0, memory_mib=2048, priority=90))
    return world


def test_a_priority_a_guarantee_of_gpus_and_one_of_memory_do_not_stop_each_other_in_turn() -> None:
    world = three_in_turn()
    stopped = Counter(world.settle())
    assert max(stopped.values()) < ONCE_EACH, stopped
    assert set(world.running) == {"low", "guest"}, "both have a right"


def test_the_one_with_the_priority_has_its_turn_as_soon_as_there_is_room() -> None:
    for gone in ("low", "guest"):
        world = three_in_turn()
        world.settle()
        world.delete(gone)
        world.settle()
        assert "high" in world.running, gone


@pytest.mark.parametrize(("at", "victims"), [(-1, ["low"]), (1, [])])
def test_who_was_stopped_itself_stops_as_before_who_was_only_stopped_before_it_came(
    at: int, victims: list[str]
) -> None:
    world = three_in_turn()
    low, high = world.running["low"], world.queue["high"]
    world.running["low"] = replace(low, workload=replace(low.workload, requeued_at=at * SECOND))
    world.submit(replace(high, requeued_at=2 * SECOND))
    assert [each.victim for each in world.step().reclaims] == victims


def twice(first: list[Workload], second: list[Workload], nodes: tuple[NodeSnapshot, ...], **quotas: object) -> World:
    """Two projects alike, each with a session of a high and one of a low priority; the second one comes later."""
    world = World(nodes, (project("p", 0, **quotas), project("q", 0, **quotas)))
    world.submit(*first)
    world.step()
    world.submit(*second)
    return world


def test_two_whose_own_low_ones_run_elsewhere_do_not_take_a_place_from_each_other_in_turn() -> None:
    nodes = node("rare", 1, groups=("red",)), node("plain", 4)

    def pair(owner: str, at: int) -> list[Workload]:
        high = work(f"high-{owner}", owner, 1, at, priority=90, groups=("red",), grouped_only=True)
        return [high, work(f"low-{owner}", owner, 1, at, priority=10, groups=())]

    world = twice(pair("p", 0), pair("q", 1), nodes)
    world.projects = (project("p", 1), project("q", 1))
    stopped = Counter(world.settle())
    assert not stopped or max(stopped.values()) < ONCE_EACH, stopped


def test_nor_do_two_of_which_each_has_cpus_guaranteed() -> None:
    nodes = node("rare", 0, groups=("red",), cpu_milli=4000), node("plain", 0, cpu_milli=16000)

    def pair(owner: str, at: int) -> list[Workload]:
        high = cores(f"high-{owner}", owner, 4, at, priority=90, groups=("red",), grouped_only=True)
        return [high, cores(f"low-{owner}", owner, 4, at, priority=10, groups=())]

    stopped = Counter(twice(pair("p", 0), pair("q", 1), nodes, cpu=Bounds(4000)).settle())
    assert not stopped or max(stopped.values()) < ONCE_EACH, stopped


@pytest.mark.parametrize("part", range(PARTS))
def test_with_quotas_of_both_priorities_and_groups_mixed_everything_comes_to_rest(part: int) -> None:
    for number in range(part, MANY, PARTS):
        world = mixed(number)
        try:
            stopped = Counter(world.settle(80))
        except AssertionError as error:
            error.add_note(f"in the world of number {number}")
            raise
        assert not stopped or max(stopped.values()) <= ONCE_EACH, f"{stopped} in the world of number {number}"


def mixed(number: int) -> World:
    """Few nodes, full of work of all kinds."""
    draw = random.Random(number)
    nodes = tuple(
        node(
            f"n{at}",
            gpus := draw.choice((0, 1, 2, 4)),
            cpu_milli=max(4, 2 * gpus) * 1000,
            groups=draw.choice(((), ("red",), ("blue",))),
        )
        for at in range(draw.choice((1, 1, 2, 3)))
    )
    gpus, cpus = sum(len(each.gpus) for each in nodes), sum(each.cpu_milli for each in nodes) // 1000
    projects = tuple(
        project(
            name,
            draw.randint(0, gpus),
            cpu=draw.choice((None, Bounds(draw.randint(0, cpus) * 1000))),
            weight=draw.choice((None, 1, 2)),
        )
        for name in "pqr"[: draw.choice((2, 2, 3))]
    )
    world = World(nodes, projects)
    for at in range(draw.randint(4, 10)):
        asks = draw.choice((0, 0, 1, 1, 2))
        groups = draw.choice((None, None, None, ("red",), ("blue",)))
        each = Workload(
            f"w{at}",
            draw.choice(projects).name,
            -draw.choice((0, 5, 100)) * SECOND,
            f"w{at}",
            gpu_milli=asks * 1000,
            cpu_milli=draw.choice((500, 1000, 4000)) if not asks else draw.choice((0, 0, 500, 1000)),
            priority=draw.choice((10, 50, 90)),
            groups=groups,
            grouped_only=groups is not None and draw.random() < 0.5,
        )
        world.submit(each)
        if draw.random() < 0.4:
            world.step()
    return world
