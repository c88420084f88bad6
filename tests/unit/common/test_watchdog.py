"""Signs of life for systemd."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from common.watchdog import Watchdog, ask_for_time

pytestmark = pytest.mark.anyio

ASKED = ("/run/systemd/notify", 40_000)


async def nothing() -> str:
    return ""


async def something() -> str:
    return "the timetable"


async def never() -> str:
    return await asyncio.Future()


class Told:
    """What systemd was told; `error` is raised instead."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.error: OSError | None = None
        self._called = asyncio.Event()

    def __call__(self, address: str, message: bytes) -> None:
        self._called.set()
        if self.error:
            raise self.error
        self.messages.append((address, message))

    async def next(self) -> None:
        """Wait for the next call."""
        self._called.clear()
        async with asyncio.timeout(60):
            await self._called.wait()


@pytest.fixture
def told() -> Told:
    return Told()


async def test_signs_come_more_often_than_they_are_asked_for(told: Told) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(Watchdog(nothing, *ASKED, told).run())
    await told.next()
    begun = loop.time()
    for _ in range(4):
        await told.next()
    assert loop.time() - begun >= 0.035, "and not without a pause"
    task.cancel()
    assert set(told.messages) == {("/run/systemd/notify", b"WATCHDOG_USEC=40000\nWATCHDOG=1")}


async def test_what_is_stuck_gives_no_sign(told: Told) -> None:
    with capture_logs() as lines:
        task = asyncio.create_task(Watchdog(something, *ASKED, told).run())
        await asyncio.sleep(0.05)
        task.cancel()
    assert told.messages == []
    assert lines[0]["what"] == "the timetable"


async def test_who_hangs_while_it_looks_gives_no_sign(told: Told) -> None:
    with capture_logs() as lines:
        task = asyncio.create_task(Watchdog(never, *ASKED, told).run())
        await asyncio.sleep(0.1)
        task.cancel()
    assert told.messages == []
    assert lines[0]["what"] == "who looks whether something hangs"


async def test_who_fails_while_it_looks_gives_no_sign_and_says_why(told: Told) -> None:
    async def fails() -> str:
        raise RuntimeError("no such timetable")

    with capture_logs() as lines:
        task = asyncio.create_task(Watchdog(fails, *ASKED, told).run())
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
    assert told.messages == []
    assert lines[0]["what"] == "who looks whether something hangs: no such timetable"
    assert lines[0]["log_level"] == "error"


async def test_a_sign_that_is_not_taken_is_not_the_last(told: Told) -> None:
    told.error = OSError("refused")
    with capture_logs() as lines:
        task = asyncio.create_task(Watchdog(nothing, *ASKED, told).run())
        await told.next()
        told.error = None
        await told.next()
        task.cancel()
    assert len(told.messages) == 1
    assert lines[0]["reason"] == "refused"


@pytest.mark.parametrize(("address", "limit_usec"), [("", 0), ("/x", 0), ("", 40_000)])
async def test_where_systemd_does_not_ask_nothing_is_told(told: Told, address: str, limit_usec: int) -> None:
    async with asyncio.timeout(60):
        await Watchdog(nothing, address, limit_usec, told).run()
    ask_for_time(address, limit_usec, told)
    assert told.messages == []


@pytest.mark.parametrize(("limit_usec", "asked"), [(30_000_000, b"300000000"), (900_000_000, b"900000000")])
def test_a_start_has_more_time_than_a_sign_of_life(told: Told, limit_usec: int, asked: bytes) -> None:
    ask_for_time("/run/systemd/notify", limit_usec, told)
    assert told.messages == [("/run/systemd/notify", b"WATCHDOG_USEC=" + asked)]


def test_a_start_goes_on_without_the_time_that_it_asked_for(told: Told) -> None:
    told.error = OSError("refused")
    with capture_logs() as lines:
        ask_for_time("/run/systemd/notify", 40_000, told)
    assert lines[0]["reason"] == "refused"
