"""Pulls: each image once, however many wait for it; a failure is told once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from appliance.agent.docker.engine import Image
from appliance.agent.docker.images import MAX_PULLS, Images
from common.errors import PenstockError, UnavailableError
from common.protocol import ImageStatus

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FakeEngine:
    """An engine whose pulls go on until the test lets them end."""

    def __init__(self) -> None:
        self.here: dict[str, Image] = {}
        self.pulled: list[str] = []
        self.go = threading.Event()
        self.error: Exception | None = None
        self.most = self.running = 0
        self._lock = threading.Lock()

    def image(self, reference: str) -> Image | None:
        return self.here.get(reference)

    def pull(self, image: str, progress: Callable[[int, int], None]) -> None:
        with self._lock:
            self.pulled.append(image)
            self.running += 1
            self.most = max(self.most, self.running)
        progress(3, 10)
        self.go.wait(10)
        with self._lock:
            self.running -= 1
        if self.error:
            raise self.error
        self.here[image] = Image("sha256:1", 10)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in threads
            await asyncio.sleep(0.005)


async def test_an_image_that_is_here_is_ready_without_a_pull() -> None:
    engine = FakeEngine()
    engine.here["a"] = Image("sha256:1", 10)
    state = await Images(engine).ask("a")
    assert (state.status, state.digest, state.size) == (ImageStatus.READY, "sha256:1", 10)
    assert engine.pulled == []


async def test_an_image_with_labels_of_ours_has_failed() -> None:
    engine = FakeEngine()
    engine.here["a"] = Image("sha256:1", 10, {"maintainer", "io.penstock.network"})
    state = await Images(engine).ask("a")
    assert state.status is ImageStatus.FAILED
    assert "the image a has labels that Penstock alone may write: io.penstock.network" in state.error


async def test_many_who_want_an_image_have_it_pulled_once_and_see_how_far_it_is() -> None:
    engine = FakeEngine()
    images = Images(engine)
    waiting = [asyncio.create_task(images.wait("a")) for _ in range(5)]
    assert (await images.ask("a")).status is ImageStatus.PULLING
    await until(lambda: engine.running == 1)
    state = await images.ask("a")
    assert (state.status, state.pulled, state.size) == (ImageStatus.PULLING, 3, 10)
    engine.go.set()
    await asyncio.gather(*waiting)
    assert engine.pulled == ["a"]
    assert (await images.ask("a")).status is ImageStatus.READY


async def test_a_failure_is_told_once_and_then_tried_again() -> None:
    engine = FakeEngine()
    engine.error, images = UnavailableError("no such image"), Images(engine)
    engine.go.set()
    assert (await images.ask("a")).status is ImageStatus.PULLING
    await until(lambda: engine.running == 0)
    await asyncio.sleep(0.05)
    failed = await images.ask("a")
    assert (failed.status, failed.error) == (ImageStatus.FAILED, "no such image.")
    engine.error = None
    assert (await images.ask("a")).status is ImageStatus.PULLING
    await until(lambda: "a" in engine.here)


async def test_a_failure_ends_the_wait_and_the_unforeseen_is_one_too() -> None:
    engine = FakeEngine()
    engine.go.set()
    for error in (UnavailableError("no such image"), RuntimeError("the engine broke")):
        engine.error = error
        with pytest.raises(PenstockError, match=str(error)):
            await Images(engine).wait("a")


async def test_one_who_no_longer_waits_does_not_end_the_pull_of_the_others() -> None:
    engine = FakeEngine()
    images = Images(engine)
    gone, stays = (asyncio.create_task(images.wait("a")) for _ in range(2))
    await until(lambda: engine.running == 1)
    gone.cancel()
    engine.go.set()
    await stays
    assert gone.cancelled()


async def test_only_a_few_are_pulled_at_a_time() -> None:
    engine = FakeEngine()
    images = Images(engine)
    waiting = [asyncio.create_task(images.wait(str(number))) for number in range(3 * MAX_PULLS)]
    await until(lambda: engine.running == MAX_PULLS)
    await asyncio.sleep(0.05)
    engine.go.set()
    await asyncio.gather(*waiting)
    assert engine.most == MAX_PULLS
    assert len(engine.pulled) == 3 * MAX_PULLS


async def test_the_agent_ends_without_waiting_for_a_pull() -> None:
    engine = FakeEngine()
    images = Images(engine)
    await images.ask("a")
    await until(lambda: engine.running == 1)
    async with asyncio.timeout(2):
        await images.close()
    engine.go.set()
