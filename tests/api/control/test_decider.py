"""Sessions at which decisions fail: they wait alone, all others are served, and each is ended in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from api.control import decider
from api.control.reconcilers import failures
from api.control.reconcilers.failures import TRIES
from api.control.retries import NEVER
from api.scheduler.cycle import Cycle
from api.scheduler.snapshot import Workload
from tests.api.cluster import Cluster
from tests.api.control.failing import GIVEN_UP, Unforeseen, outcome, persist
from tests.api.steps import delete, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]

LEFT_OUT = f"the API failed to find it a place, {{}} of {TRIES} times; it tries again, and all others are served"
LIKE_OTHERS = "the API failed to find a place for others that ask for the same; it tries again, and the rest is served"


@pytest.fixture(autouse=True)
async def _in_time() -> AsyncIterator[None]:
    """Fail a test that tries without end."""
    async with asyncio.timeout(60):
        yield


class Broken:
    """Decisions that fail on some queues, for a number of times."""

    times = 0
    until = 1 << 30


def fail_to_decide(
    monkeypatch: pytest.MonkeyPatch, concerns: Callable[[Sequence[Workload]], bool], until: int = 1 << 30
) -> Broken:
    """Let decisions on queues fail that have what is bad; returns how often they did, and until when they do."""
    begin, broken = Cycle.__init__, Broken()
    broken.until = until

    def choosy(cycle: Cycle, state: Any, queue: Any, *args: Any) -> None:
        if broken.times < broken.until and concerns(queue):
            broken.times += 1
            raise Unforeseen
        begin(cycle, state, queue, *args)

    monkeypatch.setattr(Cycle, "__init__", choosy)
    return broken


@pytest.mark.parametrize("others", [0, 1, 6])
async def test_a_session_at_which_the_decision_fails(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    fail_to_decide(monkeypatch, lambda queue: any(workload.name == "bad" for workload in queue))
    names = [f"good-{number}" for number in range(others)]
    for name in [*names[:2], "bad", *names[2:]]:
        await ready.submit(name, gpu_milli=500)
    await ready.manager.reconcile()
    states = await ready.states()
    assert "PENDING" not in {states[name] for name in names}, "in the same pass"
    assert await outcome(ready) == ("PENDING", LEFT_OUT.format(1))
    assert (await ready.session("bad"))["cause"] == "failing"
    await persist(ready)
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to find it a place"))
    assert {(await ready.states())[name] for name in names} <= {"RUNNING"}


async def test_sessions_at_which_the_decision_fails_wait_alone_and_are_told_of(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as they are not to be tried again, all others are served, and the site's checks name them."""
    monkeypatch.setattr(failures, "RETRY_S", (NEVER,))
    ids = sorted([(await ready.submit(name))["id"] for name in ("bad-1", "bad-2")])
    broken = fail_to_decide(monkeypatch, lambda queue: any(workload.id in ids for workload in queue))
    loop = ready.manager.loop
    for number in range(3):
        await ready.submit(f"good-{number}")
        await ready.settle()
        assert (await ready.states())[f"good-{number}"] == "RUNNING"
    assert broken.times < 10, "nobody looks for them again"
    check, once = loop.check(), f"(1 of {TRIES} times)"
    assert check.state == "warn"
    assert check.evidence == f"it fails at session {ids[0]} {once}, session {ids[1]} {once}; all others are served"
    assert ids[0] in check.hint
    _, snapshot = await loop.apart()
    assert not snapshot.queue, "others who decide on it do not fail either"
    assert loop.last is not None
    assert not {workload.id for workload in loop.last.snapshot.queue} & {*ids}
    for name in ("bad-1", "bad-2"):
        await delete(ready, name)
    await ready.settle()
    assert loop.check().state == "ok"


@pytest.mark.parametrize(("search_s", "passes"), [(60.0, 1), (-1.0, 8)])
async def test_all_others_are_served_in_the_same_pass_however_many_fail_that_ask_for_different_things(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, search_s: float, passes: int
) -> None:
    """Where the search takes too long, those before the one that is found are."""
    monkeypatch.setattr(failures, "RETRY_S", (NEVER,))
    monkeypatch.setattr(decider, "SEARCH_S", search_s)
    for number in range(7):
        await ready.submit(f"bad-{number}", gpu_milli=100 + 50 * number)
        await ready.submit(f"good-{number}", gpu_milli=50)
    fail_to_decide(monkeypatch, lambda queue: any(workload.name.startswith("bad") for workload in queue))
    for _ in range(passes):
        await ready.manager.reconcile()
    states = await ready.states()
    assert {name for name, state in states.items() if state == "PENDING"} == {f"bad-{number}" for number in range(7)}


async def test_all_that_ask_for_the_same_are_left_out_at_once_where_decisions_fail_at_them(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served in the same pass, however many those are; each is told why it waits, and the site's check."""
    monkeypatch.setattr(failures, "RETRY_S", (NEVER,))
    for number in range(6):
        await ready.submit(f"bad-{number}", gpu_milli=750)
    await ready.submit("good", gpu_milli=500)
    broken = fail_to_decide(monkeypatch, lambda queue: any(workload.gpu_milli == 750 for workload in queue))
    await ready.manager.reconcile()
    assert (await ready.states())["good"] != "PENDING", "in the same pass"
    assert broken.times < 8, "it is not found out of each of them"
    told = Counter([await outcome(ready, f"bad-{number}") for number in range(6)])
    assert told == {("PENDING", LEFT_OUT.format(1)): 1, ("PENDING", LIKE_OTHERS): 5}
    check = ready.manager.loop.check()
    assert check.evidence.endswith("; it leaves out 5 that ask for the same; all others are served")
    assert check.state == "warn"
    broken.until = broken.times
    for number in range(6):
        await delete(ready, f"bad-{number}")
    await ready.settle()
    assert ready.manager.loop.check().state == "ok"


async def test_of_those_that_ask_for_the_same_each_that_fails_is_ended_and_no_other(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to be tried that does not fail brings back the others."""
    ids = {name: (await ready.submit(name, gpu_milli=500))["id"] for name in ("bad-1", "good-1", "good-2", "bad-2")}
    bad = {ids["bad-1"], ids["bad-2"]}
    fail_to_decide(monkeypatch, lambda queue: any(workload.id in bad for workload in queue))
    await ready.manager.reconcile()
    assert {(await ready.session(name))["cause"] for name in ids} == {"failing"}
    await persist(ready, 4 * TRIES)
    states = await ready.states()
    assert {name: states[name] for name in ids} == {
        "bad-1": "FAILED",
        "good-1": "RUNNING",
        "good-2": "RUNNING",
        "bad-2": "FAILED",
    }


async def test_what_is_known_of_the_cluster_is_kept_while_one_is_tried_in_vain(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all nodes and all that runs are taken in anew for the decision that comes after."""
    await run(ready, "runs", gpu_milli=1000)
    await ready.submit("bad", gpu_milli=500)
    fail_to_decide(monkeypatch, lambda queue: any(workload.name == "bad" for workload in queue))
    await ready.manager.reconcile()
    decider = ready.manager.loop._decider
    await ready.submit("waits", gpu_milli=4000)
    await ready.manager.reconcile()
    assert decider.left_out[(await ready.session("bad"))["id"]] == 2, "it was tried again"
    good = decider._planner
    assert good is not None
    await ready.submit("next", gpu_milli=500)
    await ready.manager.reconcile()
    assert decider._planner is good


async def test_one_that_can_be_decided_on_again_is_served(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await ready.submit("bad")
    fail_to_decide(monkeypatch, lambda queue: any(workload.name == "bad" for workload in queue), TRIES - 1)
    await persist(ready, TRIES)
    assert await outcome(ready) == ("RUNNING", "")
    assert ready.manager.loop.check().state == "ok"


async def test_where_decisions_fail_whoever_waits_the_check_says_so(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready.submit("demo")
    broken = fail_to_decide(monkeypatch, lambda _: True)
    await ready.settle()
    check = ready.manager.loop.check()
    assert (check.state, check.evidence) == ("fail", "its decisions fail: Unforeseen")
    broken.until = broken.times
    await persist(ready)
    assert await outcome(ready, "demo") == ("RUNNING", "")
    assert ready.manager.loop.check().state == "ok"
