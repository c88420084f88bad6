"""What fails unexpectedly at one session, image or container: it hinders no other, and is given up in the end."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from api.control.loop import Loop
from api.control.manager import MAX_FAILURES
from api.control.reconcilers import change, deadlines, losses, observe
from api.control.reconcilers.failures import TRIES
from api.resources.sessions import changes, elastic, repository, resizing, scheduling, service
from api.resources.sessions.changes import Change
from api.tables.sessions import State
from tests.api.cluster import V1, Cluster, ok
from tests.api.control.failing import GIVEN_UP, Unforeseen, outcome, persist
from tests.api.steps import delete, listen, lose, pass_time, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


@pytest.fixture(autouse=True)
async def _in_time() -> AsyncIterator[None]:
    """Fail a test that tries without end."""
    async with asyncio.timeout(60):
        yield


def failing(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, concerns: Callable[..., bool]) -> Counter[str]:
    """Let a function fail where a call concerns what is bad; returns how often it was called for that."""
    original, calls = getattr(owner, name), Counter[str]()

    def choosy(*args: Any, **kwargs: Any) -> Any:
        if concerns(*args, **kwargs):
            calls[name] += 1
            raise Unforeseen
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, choosy)
    return calls


def is_bad(session: Any, *_: object, **__: object) -> bool:
    return bool(session.name == "bad")


async def test_an_environment_that_no_agent_can_be_told(ready: Cluster) -> None:
    """As it was stored before such text was refused."""
    await ready.submit("bad")
    half = json.dumps({"A": "\ud800"})
    async with ready.database.transaction() as db:
        await db.execute(text("UPDATE sessions SET environment = CAST(:half AS json)"), {"half": half})
    await ready.submit("good")
    with capture_logs() as lines:
        await ready.settle()
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to start its containers"))
    assert (await ready.states())["good"] == "RUNNING"
    told = [line for line in lines if line["event"] == "failed unexpectedly"]
    assert [line["times"] for line in told] == list(range(1, TRIES + 1))
    assert {line["log_level"] for line in told} == {"error"}
    assert [line["reason"] for line in lines if line.get("state") == "TERMINATING"] == [(await outcome(ready))[1]]
    await ready.settle()
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["used_milli"] == 500


async def test_a_launch_takes_its_other_containers_with_it(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = ready.engine.launch

    async def choosy(agent: Any, spec: Any) -> Any:
        if spec.id.endswith("-1"):
            raise Unforeseen
        return await launch(agent, spec)

    monkeypatch.setattr(ready.engine, "launch", choosy)
    await ready.submit("bad", replicas=2)
    await ready.settle()
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to start its containers"))
    assert ready.engine.containers == {}
    assert [call for call in ready.engine.calls if call[0] == "terminate"], "the one that was launched is removed"


async def test_what_is_written_together_does_not_fail_together(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def concerns(_db: object, wanted: Sequence[Change]) -> bool:
        read: list[Any] = [each.session for each in wanted]
        return any(is_bad(session) and session.state is State.PREPARING for session in read)

    failing(monkeypatch, changes, "write", concerns)
    for name in ("first", "bad", "last"):
        await ready.submit(name)
    with capture_logs() as lines:
        await ready.settle()
    states = await ready.states()
    assert (states["first"], states["last"]) == ("RUNNING", "RUNNING")
    assert "outcomes are written one by one" in {line["event"] for line in lines}
    bad = (await ready.session("bad"))["id"]
    assert {line["key"] for line in lines if line["event"] == "failed unexpectedly"} == {bad}


async def test_the_end_of_a_session_and_what_is_left_of_it(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container is an orphan, which is not removed without end either; what that holds is given to nobody."""
    await run(ready, "bad")
    asked: list[str] = []

    async def fail(agent: Any, container_id: str, grace_s: int) -> None:
        asked.append(container_id)
        raise Unforeseen

    monkeypatch.setattr(ready.engine, "terminate", fail)
    await delete(ready, "bad")
    await ready.settle()
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to remove its containers"))
    assert len(asked) == TRIES
    for _ in range(3 * TRIES):
        await ready.heartbeat()
        await ready.settle()
    assert len(asked) == 2 * TRIES
    await run(ready, "good", gpu_milli=3000)
    await ready.submit("large", gpu_milli=1000)
    await ready.settle()
    assert (await ready.session("large"))["state"] == "PENDING", "half a GPU is held by what is left"


async def test_a_log_that_cannot_be_read_keeps_no_session(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(ready, "bad")

    async def fail(*_: object, **__: object) -> AsyncIterator[bytes]:
        raise Unforeseen
        yield b""

    monkeypatch.setattr(ready.engine, "logs", fail)
    await delete(ready, "bad")
    await ready.settle()
    assert await outcome(ready) == ("TERMINATED", "deleted")


async def test_a_share_that_cannot_be_changed_stays(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(ready, "bad")
    failing(monkeypatch, ready.engine, "resize", lambda _agent, _id, shares: shares.gpus[0].milli == 250)
    await ok(ready.admin.patch(f"{V1}/sessions/bad", params={"project": "team-a"}, json={"gpu_milli": 250}))
    await ready.settle()
    said = GIVEN_UP.format("to change its share")
    assert await outcome(ready) == ("RUNNING", f"its share stays 0.5 GPU: {said}")
    session = await ready.session("bad")
    assert (session["gpu_milli"], session["resize_milli"], session["cause"]) == (500, None, "resize")


async def test_a_share_of_which_nobody_knows_ends_its_session(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(ready, "bad")
    failing(monkeypatch, ready.engine, "resize", lambda *_: True)
    await ok(ready.admin.patch(f"{V1}/sessions/bad", params={"project": "team-a"}, json={"gpu_milli": 250}))
    await ready.settle()
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to change its share"))
    assert ready.engine.containers == {}


async def test_a_share_that_cannot_be_raised_stays(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        await run(ready, name, gpu_milli=250)
    for name in ("bad", "good"):
        wish = {"gpu_milli": 500}
        await ok(ready.admin.patch(f"{V1}/sessions/{name}", params={"project": "team-a"}, json=wish))
    failing(monkeypatch, resizing, "_check_space", lambda _db, session, *_: is_bad(session))
    await persist(ready, TRIES + 2)
    said = GIVEN_UP.format("to raise its share")
    assert await outcome(ready) == ("RUNNING", f"its share stays 0.25 GPU: {said}")
    assert (await ready.session("good"))["gpu_milli"] == 500


async def test_an_image_that_cannot_be_looked_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.control.image_check.POLL_S", 0.0)
    await cluster.add_node()
    calls = failing(monkeypatch, cluster.engine, "pull", lambda *_: True)
    await cluster.add_image()
    await cluster.settle()
    (image,) = await ok(cluster.admin.get(f"{V1}/images"))
    assert (image["status"], image["error"]) == ("failed", GIVEN_UP.format("to have it pulled"))
    assert calls["pull"] == TRIES


async def test_a_deadline(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be judged keeps nobody from being ended in time."""
    ready.engine.failure = None
    monkeypatch.setattr(ready.engine, "first_status", ready.engine.first_status.CREATING)
    for name in ("bad", "good"):
        await ready.submit(name)
    await ready.settle()
    failing(monkeypatch, deadlines, "phase_of", is_bad)
    pass_time(ready, ready.settings.start_limit_s + 1)
    await ready.settle()
    assert (await ready.states())["good"] == "FAILED"
    await persist(ready)
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to look at its deadline"))


async def test_what_cannot_be_written(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready.engine, "first_status", ready.engine.first_status.CREATING)
    for name in ("bad", "good"):
        await ready.submit(name)
    await ready.settle()
    apply = change.apply

    async def fail(db: Any, update: Any) -> bool:
        if update.session.name == "bad" and update.values["reason"].startswith("its container did not"):
            await db.execute(text("SELECT 1/0"))
        return await apply(db, update)

    monkeypatch.setattr(change, "apply", fail)
    pass_time(ready, ready.settings.start_limit_s + 1)
    await persist(ready)
    assert (await ready.states())["good"] == "FAILED"
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to write how far it is"))


async def test_the_loss_of_a_node(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        await run(ready, name)
    failing(monkeypatch, losses, "start_again", lambda _db, session, *_: is_bad(session))
    await lose(ready)
    assert (await ready.session("good"))["state"] == "PENDING"
    await listen(ready)
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to do what the loss of its node asks for"))


async def test_what_a_node_says_of_a_session(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other session of its node is followed, and other nodes of its batch are."""
    await ready.add_node("worker2", 1)
    for name in ("bad", "good"):
        await run(ready, name)
    failing(monkeypatch, observe, "after", is_bad)
    ready.exit_container(await ready.session("good"), 0)
    for _ in range(TRIES):
        ready.change_container(await ready.session("bad"), warning=f"{_}")
        for node in ("worker1", "worker2"):
            await ready.heartbeat(node, 4 if node == "worker1" else 1)
        await ready.settle()
        assert (await ready.states())["good"] == "TERMINATED"
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to follow its containers"))
    assert {node["state"] for node in await ok(ready.admin.get(f"{V1}/nodes"))} == {"ready"}


async def test_a_session_that_waits_and_cannot_be_read(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Loop, "_workload", lambda _loop, row, *_: is_bad(row))
    await ready.submit("bad")
    await ready.submit("good")
    await ready.settle()
    assert (await ready.states())["good"] == "RUNNING"
    await persist(ready)
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to read what it asks for"))


async def test_a_session_that_runs_and_cannot_be_read(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has ended nothing is given away, for what it holds is not known."""
    await run(ready, "bad", gpu_milli=3000)
    failing(monkeypatch, Loop, "_workload", lambda _loop, row, *_: is_bad(row))
    await ready.submit("good", gpu_milli=4000)
    await ready.settle()
    assert (await ready.states())["good"] == "PENDING"
    await persist(ready)
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to read what it asks for"))
    assert (await ready.states())["good"] == "RUNNING"


async def test_a_decision_that_cannot_be_written(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a leader, in its own transactions."""
    await ready.submit("good")
    bad = (await ready.submit("bad"))["id"]
    start = scheduling.start

    async def fail(db: Any, placed: Any, *args: Any) -> int:
        if any(str(id_) == bad for id_ in placed):
            await db.execute(text("SELECT 1/0"))
        return await start(db, placed, *args)

    monkeypatch.setattr(scheduling, "start", fail)
    async with ready.database.leadership() as leadership:
        assert await leadership.renew()
        for _ in range(TRIES):
            await ready.manager.reconcile(leadership.transaction)
            assert await leadership.renew()
    await ready.settle()
    assert (await ready.states())["good"] == "RUNNING"
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to find it a place"))


async def test_a_gang_that_cannot_grow_goes_on_and_hinders_nobody(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that merely wait have nothing to do with it, and what it cannot take another one may have."""
    grows: list[UUID] = []

    def is_first(_: object, id_: UUID, *__: object) -> bool:
        grows.append(id_)
        return id_ == grows[0]

    calls = failing(monkeypatch, elastic, "grow", is_first)
    await run(ready, "gang", gpu_milli=1000, replicas=1, max_replicas=4)
    await ok(
        ready.admin.post(
            f"{V1}/projects",
            json={"name": "capped", "quota_milli": 500, "over_quota": False, "period": {"ends_at": None}},
        )
    )
    await ready.submit("runs", project="capped")
    await ready.settle()
    for name in ("one", "two"):
        await ready.submit(name, project="capped")
    await ready.heartbeat()
    await persist(ready, TRIES + 2)
    assert calls["grow"] == 2 * TRIES, "together with all else, then alone"
    assert await outcome(ready, "gang") == ("RUNNING", "")
    await run(ready, "other", gpu_milli=1000, replicas=1, max_replicas=2)
    await persist(ready, TRIES)
    assert (await ready.session("other"))["replicas"] == 2
    for name in ("one", "two"):
        session = await ready.session(name, "capped")
        assert (session["state"], session["cause"]) == ("PENDING", "quota")


async def test_a_session_that_cannot_be_stopped_ends_itself_and_not_who_waits_for_it(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(ready, "bad", gpu_milli=4000, priority=10)
    failing(monkeypatch, service, "reclaim", lambda *_: True)
    await ready.submit("good", gpu_milli=4000, priority=90)
    await persist(ready, TRIES + 1)
    assert await outcome(ready) == ("FAILED", GIVEN_UP.format("to stop it for another one"))
    assert (await ready.states())["good"] == "RUNNING"


@pytest.mark.parametrize("part", ["_timed.apply", "loop.run", "_take_space"])
async def test_a_part_that_always_fails_keeps_the_others_going(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    await run(ready, "one")
    await ready.submit("two")
    await ready.manager.loop.run()

    async def fail(*_: object) -> None:
        raise Unforeseen

    owner, _, name = part.rpartition(".")
    monkeypatch.setattr(getattr(ready.manager, owner) if owner else ready.manager, name, fail)
    await delete(ready, "one")
    await ready.settle()
    assert await ready.states() == {"one": "TERMINATED", "two": "RUNNING"}


async def test_an_outage_of_the_database_is_nobodys_failure(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await ready.submit("demo")
    monkeypatch.setattr("api.control.manager.TICK_S", 0.0)
    whole, outages = repository.whole, iter(range(3 * TRIES))

    async def away(db: Any, session_id: Any) -> Any:
        if next(outages, None) is not None:
            raise OperationalError("SELECT", {}, OSError())
        return await whole(db, session_id)

    monkeypatch.setattr("api.resources.sessions.service.whole", away)
    await ready.settle()
    assert await outcome(ready, "demo") == ("RUNNING", "")


async def test_one_that_cannot_even_be_ended_is_left_alone(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = failing(monkeypatch, ready.engine, "launch", lambda *_: True)
    failing(monkeypatch, change, "apply", lambda *_: True)
    await ready.submit("bad")
    await ready.submit("worse")
    with capture_logs() as lines:
        await ready.settle()
        await persist(ready)
    assert calls["launch"] == 2 * MAX_FAILURES
    assert len([line for line in lines if line["event"] == "session left alone"]) == 2
