"""Work without a GPU: it runs beside GPUs until one within its quota needs its cores or its memory."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.cluster import ClusterState
from api.scheduler.snapshot import Cause, SchedulerSettings, Workload
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

NOW = 10_000
CORES = 64_000


def cores(id_: str, owner: str, cpus: int, at: int = 0, *, preemptible: bool = True) -> Workload:
    return work(id_, owner, 0, at, cpu_milli=cpus * 1000, preemptible=preemptible)


def full_of_cores(*, preemptible: bool = True) -> World:
    """A node of 8 GPUs whose cores are all in use without them, and an owner of all its GPUs."""
    world = World((node("n", 8, cpu_milli=CORES),), (project("owner", 8), project("b", 0)), now=NOW)
    for at in range(8):
        world.running[f"cpu{at}"] = runs(cores(f"cpu{at}", "b", 8, preemptible=preemptible), on("n"), since=at)
    world.submit(work("own", "owner", 8, NOW, cpu_milli=32_000))
    return world


def test_an_owner_gets_the_cores_beside_its_gpus() -> None:
    world = full_of_cores()
    decision = world.step()
    assert {each.victim for each in decision.reclaims} == {f"cpu{at}" for at in range(4, 8)}, (
        "the youngest, and no more"
    )
    assert "own of" not in decision.reclaims[0].reason
    assert "holds" not in decision.reclaims[0].reason, "what it holds of GPUs has nothing to do with it"
    assert world.settle() == [], "nobody is stopped once more"
    assert "own" in world.running


def test_what_cannot_be_reclaimed_stays() -> None:
    assert full_of_cores(preemptible=False).settle() == []


def test_nobody_is_stopped_for_a_fair_share() -> None:
    world = full_of_cores()
    world.projects = (project("owner", 0, weight=1), project("b", 0))
    assert world.settle() == []


def test_of_its_own_project_only_what_has_a_lower_priority_is_stopped() -> None:
    world = World((node("n", 1, cpu_milli=8000),), (project("a", 1),), now=NOW)
    world.running["same"] = runs(cores("same", "a", 8), on("n"))
    world.submit(work("own", "a", 1, NOW, cpu_milli=4000))
    assert world.settle() == []
    world.submit(work("high", "a", 1, NOW, cpu_milli=4000, priority=90))
    assert world.settle() == ["same"]


def test_cores_reserved_without_a_gpu_are_free_for_an_owner() -> None:
    """The one that waits for 16 cores came first, and has waited long."""
    world = full_of_cores()
    world.submit(cores("waits", "b", 16, NOW - 5000))
    world.queue["own"] = work("own", "owner", 8, NOW, cpu_milli=64_000)
    world.step()
    assert len(world.settle()) <= 8
    assert "own" in world.running
    assert "waits" in world.queue


def test_cores_reserved_without_a_gpu_are_not_free_for_others_without_one() -> None:
    world = World((node("n", 0, cpu_milli=8000),), (project("a", 0), project("b", 0)), now=NOW)
    world.running["r"] = runs(cores("r", "b", 4), on("n"))
    world.submit(cores("large", "a", 8, NOW - 1000), cores("small", "a", 2, NOW))
    decision = world.step()
    assert not decision.placements
    assert decision.pending_reasons["small"].cause is Cause.RESERVED
    assert decision.pending_reasons["small"].reason.endswith("with 8 CPUs and 0 MiB of memory, served first")


@given(
    running=st.lists(st.tuples(st.sampled_from("bc"), st.integers(1, 6)), max_size=10),
    guests=st.lists(st.tuples(st.sampled_from([0.5, 1, 2]), st.integers(0, 4)), max_size=4),
    owners=st.lists(st.tuples(st.integers(1, 2), st.integers(0, 8), st.integers(0, 200)), min_size=1, max_size=4),
    waiting=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5000)), max_size=4),
    reserve_after_s=st.sampled_from([0, 60]),
)
def test_a_guarantee_of_gpus_is_met_whatever_uses_their_cores(
    running: list[tuple[str, int]],
    guests: list[tuple[float, int]],
    owners: list[tuple[int, int, int]],
    waiting: list[tuple[int, int]],
    reserve_after_s: int,
) -> None:
    """What can be reclaimed and is no work of an owner goes, of whichever project, until all owners run."""
    nodes = (node("m", 2, cpu_milli=8000), node("n", 4, cpu_milli=16_000))
    projects = (project("a", 6), project("b", 0), project("c", 0, weight=2))
    world = World(nodes, projects, SchedulerSettings(0, reserve_after_s), now=NOW)
    world.submit(
        *(cores(f"r{at}", owner, cpus, at) for at, (owner, cpus) in enumerate(running)),
        *(work(f"g{at}", "b", gpus, 20 + at, cpu_milli=cpus * 1000) for at, (gpus, cpus) in enumerate(guests)),
    )
    world.settle()
    world.submit(*(cores(f"w{at}", "c", cpus, NOW - age) for at, (cpus, age) in enumerate(waiting)))
    world.submit(
        *(
            work(f"o{at}", "a", gpus, world.now - age, cpu_milli=cpus * 1000)
            for at, (gpus, cpus, age) in enumerate(owners)
        )
    )
    victims = Counter(world.settle(limit=80))
    assert all(times <= len(owners) for times in victims.values()), "at most once for each"
    for id_ in world.queue:
        if id_.startswith("o"):
            assert world.queue[id_].total_milli + world.held()["a"] > 6000 or not _fits_beside_owners(world, id_), id_


def _fits_beside_owners(world: World, id_: str) -> bool:
    """Whether it would fit if only owners ran, where they run."""
    cluster = ClusterState(world.nodes)
    for each in world.running.values():
        if each.workload.project == "a":
            cluster.allocate(each.placements, each.workload)
    return cluster.find(world.queue[id_]) is not None
