"""What may still be taken is counted step by step, and always as if it were counted from the start."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.capacity import Layout
from api.scheduler.limits import Limits
from api.scheduler.residents import Residents
from api.scheduler.snapshot import Running
from api.scheduler.victims import VictimPool
from tests.unit.api.scheduler.world import SECOND, node, on, runs, work

PROJECTS = ("a", "b", "c")
NONE = -1


def allows(pool: VictimPool, victims: list[Running]) -> bool:
    """The rule in words: none but the last victim of a project may take it below its line, and that where it may."""
    for name in PROJECTS:
        of_one = [each.workload.total_milli for each in victims if each.workload.project == name != pool.own]
        spared = max(of_one, default=0) if pool.last_may_pass else 0
        line = pool.surplus.get(name, 0) - (1 if pool.last_may_pass else 0)
        if of_one and sum(of_one) - spared > line and not pool.everyone:
            return False
    return True


@st.composite
def victim_pools(draw: st.DrawFn) -> VictimPool:
    own = draw(st.sampled_from(("", "a")))
    surplus = {name: draw(st.sampled_from((100, 500, 1000, 1500, 2500))) for name in PROJECTS if name != own}
    due = draw(st.sampled_from((0, 1500))) if own else 0
    return VictimPool(
        surplus, draw(st.booleans()), own, below=60, due=due, until=9 * SECOND, everyone=draw(st.booleans()) and not own
    )


@st.composite
def candidates(draw: st.DrawFn) -> list[Running]:
    sizes = draw(st.lists(st.tuples(st.sampled_from(PROJECTS), st.sampled_from((0, 100, 500, 1000, 1500))), max_size=9))
    return [runs(work(f"w{at}", name, milli / 1000), on("n1")) for at, (name, milli) in enumerate(sizes)]


@given(victim_pools(), candidates(), st.data())
def test_limits_follow_every_step(pool: VictimPool, found: list[Running], data: st.DataObject) -> None:
    pool_of = [each for each in found if pool.everyone or each.workload.project in (*pool.surplus, pool.own)]
    limits = Limits(pool, pool_of)
    still_open = list(range(len(pool_of)))
    taken: list[int] = []
    steps: list[tuple[int, bool]] = []
    for _ in range(12):
        place = data.draw(st.sampled_from([*still_open, NONE]))
        if place != NONE:
            take = data.draw(st.booleans()) and limits.allowed[place]
            still_open.remove(place)
            limits.close(place)
            if take:
                limits.take(place)
                taken.append(place)
            steps.append((place, take))
        elif steps:
            place, took = steps.pop()
            if took:
                limits.give_back(place)
                taken.remove(place)
            limits.reopen(place)
            still_open.append(place)
        victims = [pool_of[place] for place in taken]
        allowed = [place for place in still_open if allows(pool, [*victims, pool_of[place]])]
        assert [place for place in range(len(pool_of)) if limits.allowed[place]] == sorted(allowed)
        assert limits.taken == sum(each.workload.total_milli for each in victims)
        assert limits.owed() == pool.owed(victims)
        assert limits.would_be_owed() == pool.owed([*victims, *(pool_of[place] for place in allowed)])
        assert limits.most <= sum(pool_of[place].workload.total_milli for place in allowed)
        rest = [pool_of[place] for place in allowed]
        sets = (each for count in range(len(rest) + 1) for each in combinations(rest, count))
        possible = (each for each in sets if allows(pool, [*victims, *each]))
        assert limits.most >= max(sum(one.workload.total_milli for one in each) for each in possible)


@given(victim_pools(), st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=12), st.integers(0, 12))
def test_who_is_there_is_told_by_arrays_as_by_one_after_the_other(
    pool: VictimPool, found: list[tuple[int, int, int, int]], gone: int
) -> None:
    """Nodes, projects, sizes and starts at random; some ended, and their places are reused."""
    residents, layout = Residents(), Layout([node(f"n{at}") for at in range(3)])
    running = [
        runs(
            work(f"w{at}", (*PROJECTS, "d")[owner], milli * 0.7, priority=50 + 10 * since),
            *(on(f"n{each}") for each in {first, owner}),
            since=since * 4,
        )
        for at, (first, owner, milli, since) in enumerate(found)
    ]
    for each in running:
        residents.add(each)
    for each in running[:gone]:
        residents.remove(each)
    for each in running[: gone // 2]:
        residents.add(each)
    stay = [*running[: gone // 2], *running[gone:]]
    held, any_there = residents.held(pool, layout)
    for row, there in enumerate(layout.nodes):
        of_pool = [each for each in residents.on(there.name) if pool.has(each)]
        assert held[row] == sum(each.workload.total_milli for each in of_pool)
        assert any_there[row] == bool(of_pool)
        assert {each.workload.id for each in of_pool} <= {each.workload.id for each in stay}
