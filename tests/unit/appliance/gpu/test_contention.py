"""What containers on a GPU lost to each other, told by when their processes had work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from appliance.gpu.contention import HORIZON_NS, Contention
from appliance.gpu.layout import Interval, IntervalRecord, LogRecord

MS = 1_000_000
BEGIN = 1_000_000 * MS


def work(number: int, from_ms: float, to_ms: float, busy_ms: float | None = None, slot: int = 1) -> Interval:
    busy = to_ms - from_ms if busy_ms is None else busy_ms
    return Interval(number, BEGIN + int(from_ms * MS), BEGIN + int(to_ms * MS), int(busy * MS), slot)


def log(intervals: Sequence[Interval]) -> bytes:
    """What stands in an account."""
    record = LogRecord()
    for place, interval in enumerate(intervals):
        record.interval[place] = IntervalRecord(*(max(number, 0) for number in interval))
    return bytes(record)


def lost(*looks: Mapping[str, Sequence[Interval]], now_ms: float = 10_000) -> dict[str, float]:
    """What each has lost in all looks, in ms."""
    contention = Contention()
    contention.look(BEGIN, {name: log([]) for look in looks for name in look})
    found: dict[str, float] = {}
    for look in looks:
        for name, ns in contention.look(
            BEGIN + int(now_ms * MS), {name: log(each) for name, each in look.items()}
        ).items():
            found[name] = found.get(name, 0) + ns / MS
    return {name: round(ms, 3) for name, ms in found.items() if round(ms, 3)}


def test_who_was_alone_has_lost_nothing() -> None:
    assert lost({"a": [work(1, 0, 100)], "b": [work(1, 100, 200)]}) == {}


def test_of_the_time_in_which_two_had_work_each_has_lost_half() -> None:
    assert lost({"a": [work(1, 0, 100)], "b": [work(1, 60, 200)]}) == {"a": 20, "b": 20}


def test_of_three_each_has_lost_two_thirds() -> None:
    assert lost({name: [work(1, 0, 90)] for name in "abc"}) == dict.fromkeys("abc", 60)


def test_what_is_told_late_counts_as_what_is_told_at_once() -> None:
    at_once = lost({"a": [work(1, 0, 400)], "b": [work(1, 60, 200), work(2, 260, 400)]})
    later = lost(
        {"a": [], "b": [work(1, 60, 200)]},
        {"a": [], "b": [work(1, 60, 200), work(2, 260, 400)]},
        {"a": [work(1, 0, 400)], "b": []},
    )
    assert at_once == later == {"a": 140, "b": 140}


def test_an_interval_that_grows_counts_once() -> None:
    looks = [{"a": [work(1, 0, end)], "b": [work(1, 0, 300)]} for end in (100, 200, 300)]
    assert lost(*looks) == {"a": 150, "b": 150}


def test_another_process_with_a_number_that_was_there_is_another_interval() -> None:
    looks = [{"a": [work(1, 0, 100)], "b": [work(1, 0, 400)]}, {"a": [work(1, 200, 300, slot=2)], "b": []}]
    assert lost(*looks) == {"a": 100, "b": 100}


def test_processes_of_a_container_share_what_it_has() -> None:
    assert lost({"a": [work(1, 0, 100, slot=1), work(2, 0, 100, slot=2)]}) == {}
    # two of three slices are its own
    found = lost({"a": [work(1, 0, 90, slot=1), work(2, 0, 90, slot=2)], "b": [work(1, 0, 90)]})
    assert found == {"a": 30, "b": 60}


def test_who_turns_out_to_have_had_more_gives_back_what_it_was_given() -> None:
    one, other = work(1, 0, 90, slot=1), work(2, 0, 90, slot=2)
    assert lost({"a": [one], "b": [work(1, 0, 90)]}, {"a": [one, other], "b": []}) == {"a": 30, "b": 60}


def test_pauses_count_for_nobody() -> None:
    found = lost({"a": [work(1, 0, 100)], "b": [work(1, 0, 100, busy_ms=10)]})
    assert found == {"a": 5, "b": 5}


def test_the_mean_over_many_moments_is_that_of_processes_that_work_at_random() -> None:
    parts = {"a": 0.9, "b": 0.5, "c": 0.3, "d": 0.7}
    rng, moments = random.Random(1), 40_000
    expected = dict.fromkeys(parts, 0.0)
    for _ in range(moments):
        working = [name for name, part in parts.items() if rng.random() < part]
        for name in working:
            expected[name] += 1 - 1 / len(working)
    found = lost({name: [work(1, 0, 1000, busy_ms=1000 * part)] for name, part in parts.items()})
    assert found == pytest.approx({name: 1000 * part / moments for name, part in expected.items()}, rel=0.02)


def test_what_was_there_before_the_first_look_has_been_settled_by_somebody_else() -> None:
    contention = Contention()
    before = {"a": log([work(1, 0, 100)]), "b": log([work(1, 0, 100)])}
    assert contention.look(BEGIN + 1000 * MS, before) == {}
    assert contention.look(BEGIN + 1000 * MS, before) == {}
    grown = {"a": log([work(1, 0, 150)]), "b": log([work(1, 0, 150)])}
    assert contention.look(BEGIN + 1000 * MS, grown) == {"a": 25 * MS, "b": 25 * MS}


def test_the_future_and_what_is_long_past_do_not_count() -> None:
    assert lost({"a": [work(1, 0, 9_000)], "b": [work(1, 0, 9_000)]}, now_ms=100) == {"a": 50, "b": 50}
    late = HORIZON_NS / MS + 50
    assert lost({"a": [work(1, 0, 100)], "b": [work(1, 0, 100)]}, now_ms=late) == {"a": 25, "b": 25}


@pytest.mark.parametrize("interval", [Interval(1, BEGIN + 5, BEGIN, 5, 1), Interval(1, BEGIN, BEGIN, 0, 1)])
def test_intervals_that_are_none_are_ignored(interval: Interval) -> None:
    assert lost({"a": [interval], "b": [work(1, 0, 100)]}) == {}


def test_busy_time_beyond_the_interval_counts_as_all_of_it_and_less_than_none_as_none() -> None:
    assert lost({"a": [work(1, 0, 100, busy_ms=900)], "b": [work(1, 0, 100)]}) == {"a": 50, "b": 50}
    assert lost({"a": [Interval(1, BEGIN, BEGIN + MS, 0, 1)], "b": [work(1, 0, 1)]}) == {}


@pytest.mark.parametrize("count", [8, 16, 32, 100])
def test_processes_of_a_container_that_is_alone_lose_nothing_however_many_they_are(count: int) -> None:
    crowd = [work(number, 0, 100, busy_ms=30, slot=number) for number in range(1, count + 1)]
    assert lost({"a": crowd, "b": [work(1, 200, 300)]}) == {}


FORGED = {
    "many of them": lambda now, rng: [now - rng.randrange(HORIZON_NS) for _ in range(128)],
    "a long one at a time": lambda now, rng: [now - HORIZON_NS],
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("busy", [0, 1])
def test_a_container_that_writes_what_it_likes_holds_up_nobody(
    forged: Callable[[int, random.Random], list[int]], busy: int
) -> None:
    """What is kept and looked at is bounded, and what honest containers lost is still found."""
    rng, contention = random.Random(2), Contention()
    contention.look(BEGIN, {name: log([]) for name in ("a", "b", "forger")})
    longest, found = 0.0, 0
    for look in range(60):
        now = BEGIN + 20_000 * MS + look * 50 * MS
        lies = [
            Interval(look * 128 + number + 1, begins, now, busy * (now - begins), number + 1)
            for number, begins in enumerate(forged(now, rng))
        ]
        end = (now - BEGIN) / MS
        honest = log([work(look + 1, end - 40, end)])
        begun = time.process_time()
        told = contention.look(now, {"a": honest, "b": honest, "forger": log(lies)})
        longest, found = max(longest, time.process_time() - begun), found + told.get("a", 0)
    assert found >= 60 * 20 * MS * 0.9
    assert longest < 1


EVERY = 50 * MS


def dust(now: int, first: int) -> list[Interval]:
    """Intervals of 1 ns all over the last 50 ms."""
    begins = [now - EVERY + number * EVERY // 128 for number in range(128)]
    return [Interval(first + number, at, at + 1, 1, 1) for number, at in enumerate(begins)]


def mix(now: int, first: int) -> list[Interval]:
    """Seven processes that worked for 1 ns of the time, and dust."""
    return [Interval(first + number, now - EVERY, now, 1, 2 + number) for number in range(7)] + dust(now, first)[7:]


def many(now: int, first: int) -> list[Interval]:
    """As many processes as a log has room for, all at once."""
    return [Interval(first + number, now - 1000, now, 1000, number + 1) for number in range(128)]


def pile(now: int, first: int) -> list[Interval]:
    """Others at each look, until it has been all that an account has room for."""
    return [Interval(first + number, now - 3 * MS, now, 1 + number, (first + number) % 1023) for number in range(128)]


Forge = Callable[[int, int], list[Interval]]


def beside(forge: Forge | None, looks: int, kernel: int) -> tuple[dict[str, float], float]:
    """What two lost who work all the time, in seconds, and the CPU seconds of a look in the middle of all.

    One tells of kernels that take some looks only when they are done.
    """
    contention, found, took = Contention(), {"long": 0, "short": 0}, []
    contention.look(BEGIN, {name: log([]) for name in (*found, "forger")})
    for look in range(1, looks + 1):
        now = BEGIN + look * EVERY
        done = [Interval(look, now - kernel * EVERY, now, kernel * EVERY, 1)] if look % kernel == 0 else []
        logs = {
            "long": log(done),
            "short": log([Interval(look, now - EVERY, now, EVERY, 1)]),
            "forger": log(forge(now, look * 128) if forge else []),
        }
        begun = time.process_time()
        told = contention.look(now, logs)
        took.append(time.process_time() - begun)
        for name in found:
            found[name] += told.get(name, 0)
    return {name: ns / 1e9 for name, ns in found.items()}, sorted(took)[looks // 2]


@pytest.mark.parametrize("forge", [dust, mix])
@pytest.mark.parametrize("kernel", [8, 160], ids=["400 ms", "8 s"])
def test_crumbs_of_a_container_hide_nothing_of_what_its_neighbours_took_from_each_other(
    forge: Forge, kernel: int
) -> None:
    alone, _ = beside(None, 320, kernel)
    assert alone == {"long": 8, "short": 8}
    # the last kernel may not have been reckoned to its end
    found, _ = beside(forge, 320 + 79, kernel)
    assert found["short"] == pytest.approx(0.5 * EVERY / 1e9 * (399 // kernel * kernel), rel=0.05)
    assert found["long"] == pytest.approx(found["short"], rel=0.05)


@pytest.mark.parametrize("forge", [many, pile, mix])
def test_the_log_of_one_container_costs_a_look_little(forge: Forge) -> None:
    _, seconds = beside(forge, 60, 8)
    assert seconds < 0.005


def test_what_a_look_has_no_time_for_is_reckoned_by_the_next_ones() -> None:
    """An honest container tells of one long kernel, over as many pieces of work of others as they may tell exactly."""
    contention, expected, found = Contention(), 0.0, 0
    names = [f"short-{number}" for number in range(4)]
    contention.look(BEGIN, {name: log([]) for name in (*names, "long")})
    for look in range(1, 381):
        now = BEGIN + look * EVERY
        logs = {
            name: log(
                [
                    Interval(
                        look * 10 + at,
                        now - EVERY + (5 * at + place) * MS,
                        now - EVERY + (5 * at + place + 1) * MS,
                        MS,
                        1,
                    )
                    for at in range(10)
                ]
            )
            for place, name in enumerate(names)
        }
        expected += 0.5 * 40 * MS
        contention.look(now, {**logs, "long": log([])})
    first = contention.look(now, {**logs, "long": log([Interval(1, BEGIN, now, now - BEGIN, 1)])})["long"]
    assert 0 < first < expected / 2
    found = first + sum(contention.look(now + more, {**logs, "long": log([])}).get("long", 0) for more in range(1, 80))
    assert found == pytest.approx(expected, abs=100)


def test_work_of_more_processes_than_may_work_all_the_time_counts_as_that_of_those() -> None:
    """It is told in steps of some milliseconds, and is as much as before."""
    crowd = [work(number, 0, 40, busy_ms=4, slot=number) for number in range(1, 101)]
    eight = [work(number, 0, 40, slot=number) for number in range(1, 9)]
    assert lost({"a": crowd, "b": [work(1, 0, 40)]}) == lost({"a": eight, "b": [work(1, 0, 40)]})
