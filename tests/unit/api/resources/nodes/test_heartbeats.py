"""Heartbeats between their arrival and the database: the newest of each node, and whether it is news."""

from __future__ import annotations

import tracemalloc

import pytest

from api.clock import now
from api.resources.nodes.heartbeats import CONTESTED_FOR, Heartbeats
from common.errors import ConflictError
from common.protocol import ContainerStatus
from tests.fakes.heartbeats import beat


def test_late_and_repeated_heartbeats_are_left_out() -> None:
    heartbeats = Heartbeats()
    assert heartbeats.receive(beat(2), now())
    assert not heartbeats.receive(beat(2), now())
    assert not heartbeats.receive(beat(1), now())
    assert heartbeats.receive(beat(3), now())


def test_a_new_run_of_the_agent_counts_from_the_start_and_the_old_one_is_over() -> None:
    heartbeats = Heartbeats()
    assert heartbeats.receive(beat(9, "boot-1"), now())
    assert heartbeats.receive(beat(1, "boot-2"), now())
    with pytest.raises(ConflictError, match="another agent reports as worker1"):
        heartbeats.receive(beat(10, "boot-1"), now())
    assert heartbeats.receive(beat(2, "boot-2"), now())


def test_who_reports_under_many_boots_fills_no_memory() -> None:
    heartbeats = Heartbeats()
    tracemalloc.start()
    for number in range(200):
        heartbeats.receive(beat(1).model_copy(update={"boot": f"{number}{'x' * 10_000}"}), now())
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000


def test_an_agent_that_another_one_displaced_says_so_for_a_while() -> None:
    heartbeats, at = Heartbeats(), now()
    heartbeats.receive(beat(1, "boot-1"), at)
    heartbeats.receive(beat(1, "x"), at)
    with pytest.raises(ConflictError):
        heartbeats.receive(beat(2, "boot-1"), at)
    heartbeats.receive(beat(3, "boot-2"), at)
    heartbeats.receive(beat(4, "boot-2"), at)
    assert [report.contested for report in heartbeats.take()] == [True]
    heartbeats.repeat("worker1", 5, at + CONTESTED_FOR)
    assert [(report.contested, report.news) for report in heartbeats.take()] == [(False, True)]


def test_only_the_newest_is_handed_over_and_only_once() -> None:
    heartbeats = Heartbeats()
    for sequence in (1, 2, 3):
        heartbeats.receive(beat(sequence), now())
    heartbeats.receive(beat(1, name="worker2"), now())
    assert [(report.heartbeat.name, report.heartbeat.sequence) for report in heartbeats.take()] == [
        ("worker1", 3),
        ("worker2", 1),
    ]
    assert heartbeats.take() == []


def test_what_is_given_back_does_not_hide_what_is_newer() -> None:
    heartbeats = Heartbeats()
    heartbeats.receive(beat(1), now())
    old = heartbeats.take()
    heartbeats.receive(beat(2), now())
    heartbeats.give_back(old)
    assert [report.heartbeat.sequence for report in heartbeats.take()] == [2]
    heartbeats.give_back(old)
    assert [report.heartbeat.sequence for report in heartbeats.take()] == [1]


def test_only_news_is_urgent() -> None:
    heartbeats = Heartbeats()
    heartbeats.receive(beat(1), now())
    assert heartbeats.news.is_set(), "a node that was not known"
    heartbeats.take()
    heartbeats.receive(beat(2), now())
    assert not heartbeats.news.is_set(), "it lives, that is all"
    heartbeats.receive(beat(3, status=ContainerStatus.RUNNING), now())
    assert heartbeats.news.is_set()
    heartbeats.take()
    heartbeats.receive(beat(4, status=ContainerStatus.EXITED), now())
    assert heartbeats.news.is_set()


def test_news_that_was_overtaken_is_still_news() -> None:
    heartbeats = Heartbeats()
    heartbeats.receive(beat(1), now())
    heartbeats.take()
    heartbeats.receive(beat(2, status=ContainerStatus.RUNNING), now())
    heartbeats.receive(beat(3, status=ContainerStatus.RUNNING), now())
    (report,) = heartbeats.take()
    assert (report.heartbeat.sequence, report.news) == (3, True)


def test_news_that_could_not_be_written_is_still_news() -> None:
    heartbeats = Heartbeats()
    heartbeats.receive(beat(1), now())
    lost = heartbeats.take()
    heartbeats.receive(beat(2), now())
    heartbeats.give_back(lost)
    (report,) = heartbeats.take()
    assert (report.heartbeat.sequence, report.news) == (2, True)
