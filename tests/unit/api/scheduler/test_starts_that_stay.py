"""What a cycle starts stays: the next one, with nothing changed, stops none of it for the fair share of another."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from api.scheduler.snapshot import Cause, ProjectState, SchedulerSettings
from tests.unit.api.scheduler.world import World, node, on, project, runs, work

NOW = 1000

sessions = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([0.25, 0.5, 0.6, 1, 1, 1, 2, 3, 4]),
        st.sampled_from([1, 1, 1, 2]),
        st.integers(0, NOW),
        st.sampled_from([50, 50, 90]),
    ),
    min_size=2,
    max_size=16,
)


def test_what_is_fair_goes_before_what_is_not_also_behind_a_larger_one_of_its_project() -> None:
    """One of 0.6 of c hides one of 0.25 that is within the fair share; b's whole GPU is beyond that of b."""
    world = World((node("n", 2),), (project("b", 0), project("c", 0)), now=NOW)
    world.submit(work("b1", "b", 0.25), work("b2", "b", 1), work("b3", "b", 0.5, at=1))
    world.submit(work("c1", "c", 0.6), work("c2", "c", 0.6), work("c3", "c", 0.25, at=1))
    world.settle()
    assert {"c1", "c3"} < set(world.running)
    assert not any(decision.reclaims for decision in world.decisions)


def test_who_is_next_to_go_beyond_its_whole_sessions_comes_after_those_that_do_not() -> None:
    """By 16:37:7 of six GPUs shares are 1.6, 3.7 and 0.7: in whole sessions one, four and one."""
    projects = project("a", 0, weight=16), project("b", 0, weight=37), project("c", 0, weight=7)
    world = World((node("n", 6),), projects, now=NOW)
    world.submit(*(work(f"{name}{at}", name, at=at) for name in "abc" for at in range(6)))
    world.settle()
    assert world.held() == {"a": 1000, "b": 4000, "c": 1000}
    assert not any(decision.reclaims for decision in world.decisions)


def test_no_places_are_kept_from_a_higher_priority_of_the_same_project() -> None:
    """Beyond the quota of two only c3 and the large one go; kept for that alone, c3 would stop it in the next cycle."""
    world = World((node("n", 6),), (project("c", 2),), SchedulerSettings(0, 0), now=NOW)
    world.submit(*(work(f"c{at}", "c", at=at, priority=90) for at in range(1, 4)), work("large", "c", 4, priority=50))
    world.settle()
    assert {"c1", "c2", "c3"} <= set(world.running)
    assert not any(decision.reclaims for decision in world.decisions)


def nominated_for_two_gpus(*projects: ProjectState) -> World:
    """Two GPUs are being freed anyway, and a session of a project without a quota is nominated for both."""
    world = World((node("n", 2),), (project("a", 0, weight=1), *projects), now=NOW)
    world.running["leaves"] = runs(work("leaves", "a", 2), on("n", 1, 1))
    world.delete("leaves")
    world.submit(work("nominated", "a", 2, NOW))
    assert world.step().pending_reasons["nominated"].cause is Cause.RECLAIMING
    return world


def test_what_is_nominated_beyond_the_quota_comes_after_a_guarantee_that_waits() -> None:
    """Nobody was stopped for it; once it had begun it would be stopped itself."""
    world = nominated_for_two_gpus(project("owner", 1))
    world.submit(work("guaranteed", "owner", 1, NOW + 1))
    assert set(world.step().placements) == {"guaranteed"}
    assert "is kept for it" not in world.decisions[-1].pending_reasons["nominated"].reason
    assert not world.settle()


def test_what_a_guarantee_leaves_of_such_places_is_used_at_once() -> None:
    world = nominated_for_two_gpus(project("b", 0, weight=1), project("owner", 1))
    world.submit(work("guaranteed", "owner", 1, NOW + 1), work("small", "b", 1, NOW + 1))
    assert set(world.step().placements) == {"guaranteed", "small"}
    assert not world.decisions[-1].reclaims


def test_what_is_nominated_beyond_the_quota_goes_before_others_beyond_theirs() -> None:
    world = nominated_for_two_gpus(project("b", 0, weight=1))
    world.submit(work("small", "b", 1, NOW + 1))
    assert set(world.step().placements) == {"nominated"}


@example(
    sizes=[2],
    waiting=[
        ("b", 0.25, 1, 0, 50),
        ("b", 0.5, 1, 1, 50),
        ("b", 1, 1, 0, 50),
        ("c", 0.25, 1, 1, 50),
        ("c", 0.6, 1, 0, 50),
        ("c", 0.6, 1, 0, 50),
    ],
    weights=(None, None, None),
    quotas=(0, 0, 0),
    reserve_after_s=0,
)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    waiting=sessions,
    weights=st.tuples(*[st.sampled_from([None, 0, 1, 2, 3, 4])] * 3),
    quotas=st.tuples(*[st.integers(0, 2)] * 3),
    reserve_after_s=st.sampled_from([0, 60]),
)
def test_nobody_is_stopped_for_a_fair_share_who_has_just_been_started(
    sizes: list[int],
    waiting: list[tuple[str, float, int, int, int]],
    weights: tuple[int | None, ...],
    quotas: tuple[int, int, int],
    reserve_after_s: int,
) -> None:
    nodes = tuple(node(f"n{at}", gpus) for at, gpus in enumerate(sizes))
    projects = tuple(
        project(name, quota, weight=weight) for name, quota, weight in zip("abc", quotas, weights, strict=True)
    )
    world = World(nodes, projects, SchedulerSettings(0, reserve_after_s), now=NOW)
    world.submit(
        *(
            work(f"w{at:02}", name, gpus, at=second, replicas=replicas, priority=priority)
            for at, (name, gpus, replicas, second, priority) in enumerate(waiting)
        )
    )
    started = world.step().placements
    again = world.step()
    stopped = [each for each in again.reclaims if each.victim in started and "its fair share" in each.reason]
    assert not stopped, again.log
