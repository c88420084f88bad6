"""Tasks of the agent go on, whatever one of them meets."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from appliance.agent import supervision
from appliance.agent.supervision import Background, every, keep_on
from common.errors import UnavailableError

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "PAUSE_S", 0.01)


class Task:
    """Work that fails as often as is said, and then goes on until somebody ends it, or is done."""

    def __init__(self, failures: int, *, is_done: bool = False) -> None:
        self.begun = 0
        self.runs = asyncio.Event()
        self._failures = failures
        self._is_done = is_done

    async def run(self) -> None:
        self.begun += 1
        if self.begun <= self._failures:
            raise KeyError("what nobody expected")
        self.runs.set()
        if not self._is_done:
            await asyncio.Event().wait()


async def test_a_task_that_fails_begins_anew_and_says_so_each_time() -> None:
    task = Task(failures=3)
    with capture_logs() as lines:
        running = asyncio.create_task(keep_on("heartbeats", task.run))
        await asyncio.wait_for(task.runs.wait(), 60)
    assert [(line["log_level"], line["task"]) for line in lines] == [("error", "heartbeats")] * 3
    assert "what nobody expected" in lines[0]["reason"]
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_there_is_a_pause_before_it_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "PAUSE_S", 60.0)
    task = Task(failures=10)
    running = asyncio.create_task(keep_on("heartbeats", task.run))
    await asyncio.sleep(0.05)
    assert (task.begun, running.done()) == (1, False)
    running.cancel()


async def test_work_that_is_done_is_not_done_again() -> None:
    task = Task(failures=0, is_done=True)
    await keep_on("timetable", task.run)
    assert task.begun == 1


async def test_work_in_the_background_fails_loudly_and_alone() -> None:
    background, failing, going = Background(), Task(failures=1), Task(failures=0)
    with capture_logs() as lines:
        background.begin(failing.run())
        background.begin(going.run())
        await asyncio.wait_for(going.runs.wait(), 60)
        await asyncio.sleep(0)
    assert [(line["log_level"], line["reason"]) for line in lines] == [("error", "'what nobody expected'")]
    await background.close()


async def test_what_is_done_from_time_to_time_is_done_again_after_it_was_not_possible() -> None:
    done = asyncio.Event()
    tries: list[int] = []

    async def work() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise UnavailableError("the Docker Engine does not answer")
        done.set()

    with capture_logs() as lines:
        running = asyncio.create_task(every(0.01, work))
        await asyncio.wait_for(done.wait(), 60)
    running.cancel()
    assert [line["log_level"] for line in lines] == ["warning"] * 2
