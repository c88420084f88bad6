"""Heartbeats between their arrival and the database: the newest of each node, and whether it is news."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta

import pytest

from api.clock import now
from api.resources.nodes.heartbeats import CONTESTED_FOR, Contest, Heartbeats, Rival, Sender, interval_of
from common.errors import ConflictError
from common.protocol import ContainerStatus
from tests.fakes.heartbeats import beat

OWN, CLONE = Sender(machine="machine-1"), Sender(machine="machine-2", address="192.0.2.99")


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
    assert [report.contest for report in heartbeats.take()] == [Contest(Rival.AGENT)]
    heartbeats.repeat("worker1", 5, at + CONTESTED_FOR)
    assert [(report.contest, report.news) for report in heartbeats.take()] == [(None, True)]


def test_another_machine_is_refused_as_long_as_the_node_is_heard() -> None:
    heartbeats, at = Heartbeats(held_s=12), now()
    assert heartbeats.receive(beat(1), at, sender=OWN)
    for number in range(3):
        moment = at + timedelta(seconds=5 * number)
        with pytest.raises(ConflictError, match="another machine reports as worker1"):
            heartbeats.receive(beat(1, f"clone-{number}"), moment, sender=CLONE)
        assert heartbeats.receive(beat(2 + number), moment, sender=OWN), "it is displaced by nobody"
    (report,) = heartbeats.take()
    assert (report.heartbeat.boot, report.news) == ("boot-1", True)
    assert report.contest == Contest(Rival.MACHINE, "192.0.2.99")
    assert heartbeats.receive(beat(1, "boot-2"), moment, sender=OWN), "its own agent begins anew whenever it likes"


def test_a_node_that_was_not_heard_for_long_may_be_another_machine() -> None:
    heartbeats, at = Heartbeats(held_s=12), now()
    heartbeats.receive(beat(1), at, sender=OWN)
    with pytest.raises(ConflictError):
        heartbeats.receive(beat(1, "boot-2"), at + timedelta(seconds=11), sender=CLONE)
    assert heartbeats.receive(beat(2, "boot-2"), at + timedelta(seconds=12), sender=CLONE)
    assert [report.contest for report in heartbeats.take()] == [None], "so it is with one that was started anew"
    with pytest.raises(ConflictError):
        heartbeats.receive(beat(1, "boot-3"), at + timedelta(seconds=13), sender=OWN)


def test_a_node_is_its_machines_for_a_while_after_a_start_of_the_api() -> None:
    heartbeats, at = Heartbeats(held_s=12), now()
    heartbeats.recall({"worker1": "machine-1"}, at)
    with pytest.raises(ConflictError, match="another machine reports as worker1"):
        heartbeats.receive(beat(1), at + timedelta(seconds=11), sender=CLONE)
    assert heartbeats.receive(beat(1), at + timedelta(seconds=12), sender=CLONE), "it was exchanged meanwhile"
    heartbeats.recall({"worker2": "machine-1"}, at)
    assert heartbeats.receive(beat(1, name="worker2"), at, sender=OWN)


def test_agents_that_tell_no_machine_are_told_apart_by_their_boots_alone() -> None:
    heartbeats, at = Heartbeats(held_s=12), now()
    heartbeats.receive(beat(1), at, sender=OWN)
    assert heartbeats.receive(beat(1, "boot-2"), at)


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


def test_agents_that_began_at_once_report_apart_a_minute_later() -> None:
    reports = 12
    at = sorted(reports * interval_of(f"worker{number}", 5.0) % 5.0 for number in range(2000))
    in_tenths = [sum(tenth <= 2 * moment < tenth + 1 for moment in at) for tenth in range(10)]
    assert max(in_tenths) < 500, "of 2,000 in half a second"


def test_an_agent_is_always_told_the_same_interval_and_never_a_longer_one() -> None:
    told = {interval_of(f"worker{number}", 5.0) for number in range(2000)}
    assert len(told) > 400
    assert 4.5 <= min(told) <= max(told) <= 5.0
    assert interval_of("worker1", 5.0) == interval_of("worker1", 5.0)
