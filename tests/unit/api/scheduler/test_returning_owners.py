"""Owners who ask for their own again, among guests: they get it, and then nobody is stopped any more."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from api.scheduler.snapshot import Cause, SchedulerSettings
from tests.unit.api.scheduler.world import SECOND, World, node, on, project, runs, work

LONG_AGO = 1000


def two_guests_and_their_owner() -> World:
    """Two GPUs with a guest of 0.6 on each, who waited long for them; an owner of one GPU asks for 0.6."""
    world = World((node("n1", 1), node("n2", 1)), (project("guest", 0), project("owner", 1)), now=LONG_AGO)
    for name in ("n1", "n2"):
        world.running[f"on-{name}"] = runs(work(f"on-{name}", "guest", 0.6), on(name, 0.6))
    world.submit(work("own", "owner", 0.6, at=LONG_AGO))
    return world


def test_a_guarantee_starts_and_costs_one_guest() -> None:
    world = two_guests_and_their_owner()
    assert len(world.settle()) == 1
    assert "own" in world.running


def test_one_that_was_reclaimed_waits_from_then_on() -> None:
    reclaimed = replace(work("guest", "guest", at=1), requeued_at=LONG_AGO * SECOND)
    assert reclaimed.waiting_since == LONG_AGO * SECOND
    assert work("guest", "guest", at=1).waiting_since == SECOND


def test_a_guarantee_takes_what_is_softly_reserved_before_anybody_is_stopped() -> None:
    """The GPU that is free is reserved for the fair share of one guest; another one has more than its own."""
    nodes = tuple(node(f"n{at}", 1) for at in range(3))
    world = World(nodes, (project("a", 0), project("b", 0), project("owner", 1)), now=LONG_AGO)
    for name in ("n1", "n2"):
        world.running[name] = runs(work(name, "b", 1), on(name, 1))
    world.submit(work("waits", "a", 1), work("own", "owner", 1, at=LONG_AGO))
    decision = world.step()
    assert [place.node for place in decision.placements["own"]] == ["n0"]
    assert {each.beneficiary for each in decision.reclaims} <= {"waits"}


guests = st.lists(
    st.builds(
        lambda owner, gpus, at: (owner, gpus, at),
        st.sampled_from("bc"),
        st.sampled_from([0.1, 0.25, 0.5, 0.6, 0.7, 1, 1.5, 2]),
        st.integers(0, LONG_AGO),
    ),
    min_size=1,
    max_size=14,
)
owners = st.lists(
    st.tuples(st.sampled_from([0.25, 0.5, 0.6, 0.7, 1, 1, 2]), st.sampled_from([1, 1, 1, 2]), st.integers(0, 200)),
    min_size=1,
    max_size=5,
)


@example(
    sizes=[2],
    guests=[("b", 0.25, 0), ("b", 0.5, 1), ("b", 1, 0), ("c", 0.25, 1), ("c", 0.6, 0), ("c", 0.6, 0)],
    owners=[(0.25, 1, 0), (0.25, 1, 0), (0.6, 1, 0)],
    quota=(1, 0),
    reserve_after_s=0,
)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    guests=guests,
    owners=owners,
    quota=st.tuples(st.integers(1, 8), st.integers(0, 4)),
    reserve_after_s=st.sampled_from([0, 5, 60]),
)
def test_a_world_in_which_owners_return_comes_to_rest(
    sizes: list[int],
    guests: list[tuple[str, float, int]],
    owners: list[tuple[float, int, int]],
    quota: tuple[int, int],
    reserve_after_s: int,
) -> None:
    nodes = tuple(node(f"n{at}", gpus) for at, gpus in enumerate(sizes))
    own = min(quota[0], sum(sizes))
    projects = (project("a", own), project("b", min(quota[1], sum(sizes) - own)), project("c", 0))
    world = World(nodes, projects, SchedulerSettings(0, reserve_after_s), now=LONG_AGO)
    world.submit(*(work(f"g{at:02}", name, gpus, at=second) for at, (name, gpus, second) in enumerate(guests)))
    world.settle()
    world.submit(
        *(
            work(f"o{at}", "a", gpus, at=world.now - age, replicas=replicas)
            for at, (gpus, replicas, age) in enumerate(owners)
        )
    )
    world.settle(limit=80)
    waits = world.step().pending_reasons
    assert not any(wait.cause is Cause.RECLAIMING for wait in waits.values()), "whoever reclaims starts"
    served: set[tuple[str, str]] = set()
    for decision in world.decisions:
        # who started has had what others were stopped for, and may be stopped itself by an owner
        served = {(victim, one) for victim, one in served if one not in decision.placements}
        pairs = [(each.victim, each.beneficiary) for each in decision.reclaims]
        assert not served & {*pairs}, "nobody is stopped twice for one start of the same one"
        served |= {*pairs}
