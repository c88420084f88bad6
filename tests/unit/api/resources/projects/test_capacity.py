"""Row E2: hard quotas are held for their whole periods, so their sum never passes the cluster, at any instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from api.resources.projects.capacity import QuotaPeriod, Step, covers, excess, overfull, steps

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return EPOCH + timedelta(days=number)


def quota(gpus: int, first: int = 0, end: int | None = None) -> QuotaPeriod:
    return QuotaPeriod(gpus * 1000, day(first), None if end is None else day(end))


@st.composite
def quotas(draw: st.DrawFn) -> QuotaPeriod:
    first = draw(st.integers(-5, 10))
    end = draw(st.none() | st.integers(first + 1, 16))
    return quota(draw(st.integers(0, 8)), first, end)


def total(all_of: list[QuotaPeriod], moment: datetime) -> int:
    return sum(item.milli for item in all_of if covers(item.starts_at, item.ends_at, moment))


INSTANTS = [EPOCH + timedelta(hours=6 * number) for number in range(4 * 20)]


@given(st.lists(quotas(), max_size=6), quotas(), st.integers(0, 16))
def test_what_is_let_in_never_passes_the_cluster_and_what_is_refused_would(
    others: list[QuotaPeriod], new: QuotaPeriod, gpus: int
) -> None:
    found = excess(others, None, new, capacity=gpus * 1000, now=EPOCH)
    too_much = [at for at in INSTANTS if new.at(at) and total([*others, new], at) > gpus * 1000]
    if found is None:
        assert not too_much
    else:
        assert too_much[0] == found.since
        assert total([*others, new], found.since) == found.milli


@given(st.lists(quotas(), max_size=5), quotas(), quotas(), st.integers(0, 16))
def test_a_change_is_refused_only_where_it_makes_things_worse(
    others: list[QuotaPeriod], old: QuotaPeriod, new: QuotaPeriod, gpus: int
) -> None:
    found = excess(others, old, new, capacity=gpus * 1000, now=EPOCH)
    worse = [at for at in INSTANTS if new.at(at) > old.at(at) and total([*others, new], at) > gpus * 1000]
    assert bool(found) == bool(worse)


@given(st.lists(quotas(), max_size=6))
def test_the_steps_tell_the_sum_at_every_instant(all_of: list[QuotaPeriod]) -> None:
    course = steps(all_of, EPOCH)
    for at in INSTANTS:
        (step,) = [item for item in course if covers(item.since, item.until, at)]
        assert step.milli == total(all_of, at)


def test_two_periods_that_only_touch_share_the_cluster() -> None:
    assert excess([quota(4, 0, 10)], None, quota(4, 10, 20), capacity=4000, now=EPOCH) is None
    found = excess([quota(4, 0, 10)], None, quota(4, 9, 20), capacity=4000, now=EPOCH)
    assert found == Step(day(9), day(10), 8000)


def test_three_that_overlap_in_pairs_but_never_all_together() -> None:
    others = [quota(2, 0, 5), quota(2, 6, 10)]
    assert excess(others, None, quota(2, 4, 7), capacity=4000, now=EPOCH) is None
    assert excess(others, None, quota(3, 4, 7), capacity=4000, now=EPOCH) == Step(day(4), day(5), 5000)


def test_what_is_over_counts_no_more() -> None:
    assert excess([quota(4, -9, -1)], None, quota(4, -5), capacity=4000, now=EPOCH) is None
    assert excess([quota(4, -9, 0)], None, quota(4, -5), capacity=4000, now=EPOCH) is None


def test_a_project_may_shrink_after_the_cluster_did() -> None:
    others = [quota(4)]
    assert excess(others, quota(4), quota(3), capacity=4000, now=EPOCH) is None
    assert excess(others, quota(4), quota(4, 0, 3), capacity=4000, now=EPOCH) is None, "shorter"
    assert excess(others, quota(4, 0, 3), quota(4, 0, 4), capacity=4000, now=EPOCH) == Step(day(3), day(4), 8000)


def test_overfull_looks_at_the_own_period_only() -> None:
    course = steps([quota(4), quota(4, 5, 6)], EPOCH)
    assert overfull(course, quota(4, 0, 5), 4000) is None
    assert overfull(course, quota(4, 6), 4000) is None
    assert overfull(course, quota(4, 0, 6), 4000) == Step(day(5), day(6), 8000)
