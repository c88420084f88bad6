"""Quotas of CPU and memory: they are guaranteed to work without GPUs, after the GPUs of others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import Bounds, Cause, ProjectState, Resource, SchedulerSettings, Workload
from tests.unit.api.scheduler.truth import check_reasons
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

NOW = 10_000


def cores(id_: str, owner: str, cpus: int, at: int = 0, **more: object) -> Workload:
    return work(id_, owner, 0, at, cpu_milli=cpus * 1000, **more)


def bound(name: str, cpus: int, limit: int | None = None, gpus: float = 0, **more: object) -> ProjectState:
    """A project with a quota of CPU."""
    return project(name, gpus, cpu=Bounds(cpus * 1000, None if limit is None else limit * 1000), **more)


def full(*owners: str, each: int = 4) -> dict[str, object]:
    return {f"r{at}": runs(cores(f"r{at}", owner, each), on("n"), since=at) for at, owner in enumerate(owners)}


def world_of(*projects: ProjectState, gpus: int = 0, cpus: int = 16, running: dict[str, object] | None = None) -> World:
    world = World((node("n", gpus, cpu_milli=cpus * 1000, memory_mib=1 << 20),), projects, now=NOW)
    world.running.update(running or {})  # type: ignore[arg-type]
    return world


def test_a_hard_cap_is_one_of_cpu_too() -> None:
    world = world_of(bound("a", 6, gpus=4, over_quota=False), gpus=4)
    world.submit(cores("c0", "a", 4), work("g0", "a", 1, 1, cpu_milli=2000), cores("c1", "a", 1, 2))
    world.submit(work("g1", "a", 1, 3, cpu_milli=1000), work("g2", "a", 1, 4))
    world.settle()
    assert set(world.running) == {"c0", "g0", "g2"}, "whatever runs counts, and who asks for none needs none"
    wait = world.decisions[-1].pending_reasons["g1"]
    assert (wait.cause, wait.reason) == (
        Cause.QUOTA,
        (
            "a holds 6 CPUs of its quota of 6 CPUs, and the session asks for 1 CPU more;"
            " stop one of its sessions, or ask for a larger quota"
        ),
    )


def test_a_project_holds_no_more_than_its_limit_of_memory() -> None:
    world = world_of(project("a", 0, memory=Bounds(1000, 3000)))
    world.submit(*(work(f"m{at}", "a", 0, at, memory_mib=1000) for at in range(4)))
    world.submit(work("large", "a", 0, 9, memory_mib=3001))
    world.settle()
    assert set(world.running) == {"m0", "m1", "m2"}
    waits = world.decisions[-1].pending_reasons
    assert waits["m3"].reason.startswith("a holds 3000 MiB of memory of its limit of 3000 MiB of memory, and the")
    assert waits["large"].reason == (
        "a may hold 3000 MiB of memory, and the session asks for 3001 MiB of memory; "
        "ask for fewer or for a larger limit"
    )


def test_work_that_cannot_be_reclaimed_lives_within_the_quota() -> None:
    world = world_of(bound("a", 6, gpus=2), gpus=2)
    world.submit(cores("f0", "a", 4, preemptible=False), cores("f1", "a", 4, 1, preemptible=False))
    world.submit(work("f2", "a", 1, 2, cpu_milli=4000, preemptible=False), cores("p", "a", 4, 3))
    world.settle()
    assert set(world.running) == {"f0", "p"}
    assert "by work that cannot be reclaimed" in world.decisions[-1].pending_reasons["f1"].reason


def test_a_guarantee_takes_back_from_who_has_no_quota_and_then_from_who_is_beyond() -> None:
    world = world_of(bound("a", 8), bound("b", 4), project("c", 0), running=full("b", "b", "c", "c"))
    world.submit(cores("own", "a", 8, NOW))
    decision = world.step()
    assert {each.victim for each in decision.reclaims} == {"r3", "r2"}, "the youngest that go"
    assert "own of" not in decision.reclaims[0].reason
    assert "c has no quota of what it asks for; a session of another project is within its own" in {
        each.reason for each in decision.reclaims
    }
    assert world.settle() == [], "nobody is stopped once more"
    assert "own" in world.running


def test_nobody_is_stopped_who_is_within_its_own_quota() -> None:
    world = world_of(bound("a", 8), bound("b", 8), bound("c", 4), running=full("b", "b", "c", "c"))
    world.submit(cores("small", "a", 4, NOW - 5), cores("large", "a", 8, NOW))
    decision = world.step()
    assert [each.victim for each in decision.reclaims] == ["r3"]
    assert decision.reclaims[0].reason.startswith("c holds 8 CPUs, 4 CPUs of them beyond its quota; ")
    assert world.settle() == []
    wait = world.decisions[-1].pending_reasons["large"]
    assert wait.reason.endswith("a holds 4 CPUs of its quota of 8 CPUs, more only while others leave it idle")


def test_a_quota_of_cpu_gives_way_to_one_of_gpus() -> None:
    world = world_of(bound("a", 16), project("owner", 2), gpus=2, running=full("a", "a", "a", "a"))
    world.submit(work("own", "owner", 2, NOW, cpu_milli=8000))
    assert len(world.settle()) == 2, "and does not come back at its cost"
    assert "own" in world.running


def test_gpus_beyond_a_quota_give_way_to_one_of_cpu() -> None:
    world = world_of(bound("a", 8), project("b", 1), gpus=4)
    for at in range(3):
        guest = work(f"g{at}", "b", 1, at, cpu_milli=4000)
        world.running[f"g{at}"] = runs(guest, on("n", *[0] * at, 1), since=at)
    world.running["r"] = runs(cores("r", "b", 4), on("n"))
    world.submit(cores("own", "a", 8, NOW))
    victims = world.settle()
    assert set(victims) == {"r", "g2"}, "what has no GPUs first, then what is beyond the quota of GPUs"
    assert len(victims) == 2
    assert "own" in world.running


def test_a_fair_share_of_gpus_stops_nobody_who_has_cpu_guaranteed() -> None:
    """Its project has more GPUs than its fair share; its CPU is its own."""
    world = world_of(bound("a", 8), project("b", 0, weight=1), gpus=2)
    world.running["c"] = runs(cores("c", "a", 8), on("n"))
    world.running["g"] = runs(work("g", "a", 2, cpu_milli=1000), on("n", 1, 1))
    world.submit(work("fair", "b", 1, NOW, cpu_milli=10_000))
    assert "c" not in world.settle()


def test_own_work_of_lower_priority_makes_room_below_the_cap() -> None:
    world = world_of(bound("a", 8, over_quota=False), running=full("a", "a"))
    world.running = {
        id_: replace(each, workload=replace(each.workload, priority=10)) for id_, each in world.running.items()
    }
    world.submit(cores("urgent", "a", 4, NOW, priority=90))
    assert world.settle() == ["r1"]
    assert "urgent" in world.running


def test_a_higher_priority_takes_the_place_of_its_own_in_the_quota_and_the_room_of_guests() -> None:
    world = world_of(bound("a", 8), project("b", 0), running=full("b", "b", "b"))
    world.running["low"] = runs(cores("low", "a", 4, priority=10), on("n"))
    world.submit(cores("big", "a", 8, NOW, priority=90))
    assert sorted(world.settle()) == ["low", "r2"]
    assert "big" in world.running


def test_room_of_guests_is_no_ones_beyond_its_quota() -> None:
    """What of its own has no lower priority leaves it too little of the quota."""
    world = world_of(bound("a", 8), project("b", 0), running=full("b", "b"))
    world.running["low"] = runs(cores("low", "a", 4, priority=10), on("n"))
    world.running["same"] = runs(cores("same", "a", 4, priority=90), on("n"))
    world.submit(cores("big", "a", 8, NOW, priority=90))
    assert world.settle() == []


def test_room_of_guests_is_taken_beyond_a_quota_of_gpus_too() -> None:
    world = world_of(bound("a", 8), project("b", 0), gpus=1, cpus=12)
    world.running["low"] = runs(cores("low", "a", 4, priority=10), on("n"))
    world.running["guest"] = runs(work("guest", "b", 1, cpu_milli=8000), on("n", 1))
    world.submit(cores("big", "a", 8, NOW, priority=90))
    assert sorted(world.settle()) == ["guest", "low"]
    assert "big" in world.running


@pytest.mark.parametrize("age", [5, 100], ids=["just-now", "with-places-reserved"])
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_guest_that_waits_longer_does_not_keep_a_project_from_its_own_quota(gpus: int, age: int) -> None:
    world = world_of(bound("a", 8), project("b", 0), gpus=1, cpus=8)
    world.running |= {f"l{at}": runs(cores(f"l{at}", "a", 4, priority=10), on("n")) for at in range(2)}
    world.submit(work("guest", "b", gpus, NOW - age, cpu_milli=8000))
    world.submit(cores("big", "a", 8, NOW, priority=90))
    assert sorted(world.settle()) == ["l0", "l1"]
    assert set(world.running) == {"big"}


def test_who_has_a_right_and_waits_longer_has_the_room_of_another_project() -> None:
    """It fits in the room that another project would make for its own."""
    world = world_of(bound("a", 8), bound("c", 4), cpus=8)
    world.running |= {f"l{at}": runs(cores(f"l{at}", "a", 4, priority=10), on("n")) for at in range(2)}
    world.submit(cores("due", "c", 4, NOW - 5), cores("big", "a", 8, NOW, priority=90))
    assert world.settle() == []


def test_who_is_guaranteed_goes_first_whoever_came_first() -> None:
    world = world_of(bound("a", 16), project("b", 0))
    world.submit(cores("old", "b", 16, 0), cores("own", "a", 16, NOW))
    assert world.settle() == [], "nobody starts to be stopped at once"
    assert set(world.running) == {"own"}


def test_without_any_quota_the_older_goes_first() -> None:
    world = world_of(project("a", 1), project("b", 0), gpus=1)
    world.submit(cores("old", "b", 16, NOW - 10), work("own", "a", 1, NOW - 5, cpu_milli=1000))
    assert "old" in world.step().placements


def test_places_reserved_without_a_right_are_free_to_a_guarantee() -> None:
    world = world_of(bound("a", 16), project("b", 0), running=full("b"))
    world.submit(cores("large", "b", 16, NOW - 5000), cores("own", "a", 8, NOW))
    assert world.settle() == []
    assert "own" in world.running


def test_places_reserved_by_one_guarantee_are_not_free_to_another() -> None:
    world = world_of(bound("a", 16), bound("c", 8), project("b", 0))
    world.running["r"] = runs(cores("r", "b", 8, preemptible=False), on("n"))
    world.submit(cores("large", "a", 16, NOW - 5000), cores("small", "c", 4, NOW))
    decision = world.step()
    assert decision.pending_reasons["small"].cause is Cause.RESERVED


AMOUNTS = st.integers(0, 8)


@given(
    quotas=st.lists(st.tuples(st.none() | AMOUNTS, st.none() | AMOUNTS, st.booleans()), min_size=3, max_size=3),
    waves=st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.sampled_from([0, 0, 0.5, 1]),
                st.integers(1, 8),
                AMOUNTS,
                st.booleans(),
                st.sampled_from([10, 50, 50, 90]),
                st.sampled_from([0, 30, 500]),
            ),
            max_size=6,
        ),
        min_size=1,
        max_size=4,
    ),
    ends=st.lists(st.integers(0, 5), max_size=6),
)
def test_whatever_comes_every_promise_is_kept(
    quotas: list[tuple[int | None, int | None, bool]],
    waves: list[list[tuple[str, float, int, int, bool, int, int]]],
    ends: list[int],
) -> None:
    """It comes to rest; caps hold; nobody waits for a guarantee behind one that has none; what is said is so."""
    nodes = tuple(node(name, 2, cpu_milli=12_000, memory_mib=12_000) for name in "mn")
    projects = tuple(
        project(
            name,
            1,
            over_quota=over,
            cpu=None if cpu is None else Bounds(cpu * 1000),
            memory=None if memory is None else Bounds(memory * 1000, (memory + 4) * 1000),
        )
        for name, (cpu, memory, over) in zip("abc", quotas, strict=True)
    )
    world = World(nodes, projects, SchedulerSettings(0, 60), now=NOW)
    for wave, sessions in enumerate(waves):
        for at, (owner, gpus, cpus, memory, preemptible, priority, age) in enumerate(sessions):
            amounts = {"cpu_milli": cpus * 1000, "memory_mib": memory * 1000}
            more = {"preemptible": preemptible, "priority": priority}
            world.submit(work(f"w{wave}{at}", owner, gpus, world.now - age, **amounts, **more))
        before = world.snapshot()
        check_reasons(before, world.step())
        world.settle(limit=120)
        for which in ends:
            alive = sorted(id_ for id_, each in world.running.items() if not each.terminating)
            if wave % 2 and alive:
                world.delete(alive[which % len(alive)])
        world.settle(limit=120)
        _check(world)


def _check(world: World) -> None:
    bounds = {each.name: each for each in world.projects}
    held = {
        (each.name, resource): sum(
            run.workload.amount(resource) for run in world.running.values() if run.workload.project == each.name
        )
        for each in world.projects
        for resource in Resource
    }
    for each in world.projects:
        for resource in Resource:
            own = each.bounds(resource)
            assert own is None or held[each.name, resource] <= each.cap_of(own)
            fixed = [r.workload for r in world.running.values() if not r.workload.preemptible]
            mine = sum(item.amount(resource) for item in fixed if item.project == each.name)
            assert own is None or mine <= own.quota

    def has_right(workload: Workload, *, beside: bool) -> bool:
        """Whether a workload without GPUs is within its quotas, beside what its project holds or as part of that."""
        asked = [each for each in Resource if workload.amount(each) and bounds[workload.project].bounds(each)]
        return bool(asked) and all(
            held[workload.project, each] + (workload.amount(each) if beside else 0)
            <= (bounds[workload.project].bounds(each) or Bounds(0)).quota
            for each in asked
        )

    waiting = [each for each in world.queue.values() if not each.total_milli and has_right(each, beside=True)]
    for workload in waiting:
        for run in world.running.values():
            other = run.workload
            is_guest = not other.total_milli and other.preemptible and other.project != workload.project
            if is_guest and not has_right(other, beside=False):
                cluster = ClusterState(world.nodes)
                for stays in world.running.values():
                    if stays is not run:
                        cluster.allocate(stays.placements, stays.workload)
                for id_, places in world.decisions[-1].reservations.items():
                    if id_ != workload.id and id_ in world.queue:
                        cluster.allocate(places, world.queue[id_])
                assert cluster.find(workload) is None, f"{workload.id} waits behind {other.id}"


def test_what_is_spare_of_cpu_and_memory_is_shared_by_weights() -> None:
    """Eight CPUs, two of them guaranteed to `a`: of the six that are spare it has two thirds, whoever came first."""
    shares = World(
        (node("n1", 0, cpu_milli=8000),),
        (project("a", 0, cpu=Bounds(2000), weight=2), project("b", 0, weight=1)),
    )
    for name, at in (("a", 100), ("b", 0)):
        shares.submit(*(work(f"{name}{each}", name, 0, at, cpu_milli=1000) for each in range(9)))
    shares.settle()
    assert Counter(each.workload.project for each in shares.running.values()) == {"a": 6, "b": 2}


def test_who_has_least_of_the_spare_for_its_weight_has_what_becomes_free() -> None:
    shares = World(
        (node("n1", 0, cpu_milli=4000),),
        (project("a", 0, weight=1), project("b", 0, weight=1), project("c", 0, cpu=Bounds(0))),
    )
    shares.submit(*(work(f"a{at}", "a", 0, at, cpu_milli=1000) for at in range(6)))
    shares.settle()
    shares.submit(
        work("c0", "c", 0, 0, cpu_milli=1000), *(work(f"b{at}", "b", 0, 50 + at, cpu_milli=1000) for at in range(4))
    )
    for gone in ("a0", "a1"):
        shares.delete(gone)
        shares.settle()
    assert Counter(each.workload.project for each in shares.running.values()) == {"a": 2, "b": 2}
