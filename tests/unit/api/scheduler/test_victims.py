"""Who may be taken is told the same by a step and from the start, by arrays and one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from api.scheduler.capacity import Layout
from api.scheduler.residents import Residents
from api.scheduler.snapshot import Running
from api.scheduler.victims import Taken, VictimPool
from tests.unit.api.scheduler.world import SECOND, node, on, runs, work

PROJECTS = ("a", "b", "c")


def allows(pool: VictimPool, victims: list[Running]) -> bool:
    """The rule in words: none but the last victim of a project may take it below its line, and that where it may."""
    for name in PROJECTS:
        of_one = [each.workload.total_milli for each in victims if each.workload.project == name != pool.own]
        spared = max(of_one, default=0) if pool.last_may_pass else 0
        line = pool.surplus.get(name, 0) - (1 if pool.last_may_pass else 0)
        if of_one and sum(of_one) - spared > line and not pool.everyone:
            return False
    return True


def is_in(pool: VictimPool, running: Running) -> bool:
    """The rule in words: who may be taken at all."""
    workload = running.workload
    if workload.id in pool.taken:
        return False
    if pool.everyone:
        return workload.preemptible or running.ends_at > 0 or not pool.soon_only
    if not workload.preemptible or abs(pool.now - running.since) < pool.least:
        return False
    if workload.project == pool.own:
        return workload.priority < pool.below and workload.total_milli > pool.spared
    surplus = pool.surplus.get(workload.project, 0)
    return surplus > 0 and (pool.last_may_pass or workload.total_milli <= surplus)


@st.composite
def victim_pools(draw: st.DrawFn) -> VictimPool:
    own = draw(st.sampled_from(("", "a")))
    surplus = {name: draw(st.sampled_from((100, 500, 1000, 1500, 2500))) for name in PROJECTS if name != own}
    due = draw(st.sampled_from((0, 1500))) if own else 0
    everyone = draw(st.booleans()) and not own
    last_may_pass = draw(st.booleans())
    return VictimPool(surplus, last_may_pass, own, below=60, due=due, now=10 * SECOND, least=SECOND, everyone=everyone)


@st.composite
def candidates(draw: st.DrawFn) -> list[Running]:
    sizes = draw(st.lists(st.tuples(st.sampled_from(PROJECTS), st.sampled_from((0, 100, 500, 1000, 1500))), max_size=9))
    return [runs(work(f"w{at}", name, milli / 1000), on("n1")) for at, (name, milli) in enumerate(sizes)]


@given(victim_pools(), candidates(), st.data())
def test_who_may_be_taken_follows_every_step(pool: VictimPool, found: list[Running], data: st.DataObject) -> None:
    there = [each for each in found if pool.everyone or each.workload.project in (*pool.surplus, pool.own)]
    count, taken = Taken(pool), list[Running]()
    for _ in range(12 if there else 0):
        each = data.draw(st.sampled_from(there))
        if each in taken:
            taken.remove(each)
            count.remove(each.workload)
        elif count.allows(each.workload):
            taken.append(each)
            count.add(each.workload)
        beside = [other for other in there if other not in taken]
        assert [other for other in beside if count.allows(other.workload)] == [
            other for other in beside if allows(pool, [*taken, other])
        ]
        assert count.milli == sum(other.workload.total_milli for other in taken)
        given_up = sum(other.workload.total_milli for other in taken if other.workload.project == pool.own)
        assert count.owed() == max(0, pool.due - given_up)


def test_who_came_last_to_what_is_beyond() -> None:
    """Three GPUs of `a`, and of those that started at once who was served first is the older one."""
    residents = Residents()
    running = [
        runs(work("old", "a", 2), on("n0"), since=1),
        runs(work("first", "a", 1, at=1), on("n0"), since=2),
        runs(work("second", "a", 1, at=2), on("n0"), since=2),
        runs(work("low", "a", 1, at=0, priority=10), on("n0"), since=2),
    ]
    for each in running:
        residents.add(each)
    assert residents.youngest({"a": 1, "b": 5}, ()) == {"low"}
    assert residents.youngest({"a": 1500}, ()) == {"low", "second"}
    assert residents.youngest({"a": 1500}, ("low",)) == {"second", "first"}
    assert residents.youngest({"a": 0}, ()) == set()
    residents.remove(running[3])
    assert residents.youngest({"a": 2001}, ()) == {"second", "first", "old"}


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
    told = residents.candidates(pool, layout)
    for row, there in enumerate(layout.nodes):
        of_pool = [each for each in stay if is_in(pool, each) and there.name in {at.node for at in each.placements}]
        assert {each.workload.id for each in told.on(row)} == {each.workload.id for each in of_pool}
        assert told.held[row] == sum(each.workload.total_milli for each in of_pool)
        assert told.there[row] == bool(of_pool)
    own = {each.workload.id for each in stay if is_in(pool, each) and each.workload.project == pool.own}
    assert {each.workload.id for each in told.own} == (own if pool.due else set())
