"""Pulls: each image once, however many wait for it; a failure is told once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from appliance.agent.docker.engine import Image
from appliance.agent.docker.images import MAX_PULLS, Images
from common.errors import InputError, PenstockError, UnavailableError
from common.protocol import ImageStatus

pytestmark = pytest.mark.anyio

REGISTRIES = ["reservoir:5000"]
A = "reservoir:5000/a"


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
        self.go.wait(120)
        with self._lock:
            self.running -= 1
        if self.error:
            raise self.error
        self.here[image] = Image("sha256:1", 10)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in threads
            await asyncio.sleep(0.005)


async def test_an_image_that_is_here_is_ready_without_a_pull() -> None:
    engine = FakeEngine()
    engine.here[A] = Image("sha256:1", 10)
    state = await Images(engine, REGISTRIES).ask(A)
    assert (state.status, state.digest, state.size) == (ImageStatus.READY, "sha256:1", 10)
    assert engine.pulled == []


async def test_an_image_with_labels_of_ours_has_failed() -> None:
    engine = FakeEngine()
    engine.here[A] = Image("sha256:1", 10, {"maintainer", "io.penstock.network"})
    state = await Images(engine, REGISTRIES).ask(A)
    assert state.status is ImageStatus.FAILED
    assert "the image reservoir:5000/a has labels that Penstock alone may write: io.penstock.network" in state.error


@pytest.mark.parametrize("reference", ["10.0.0.1:22/a/b:1", "python:3.11", "5f", "sha256:5f"])
async def test_nothing_is_asked_of_a_registry_that_is_not_the_sites(reference: str) -> None:
    """Neither to see whether an image is there, nor for a container; what a node has already may run."""
    engine = FakeEngine()
    images = Images(engine, REGISTRIES)
    state = await images.ask(reference)
    assert (state.status, bool(state.error)) == (ImageStatus.FAILED, True)
    with pytest.raises(InputError):
        await images.wait(reference)
    assert engine.pulled == []
    engine.here["python:3.11"] = Image("sha256:1", 10)
    assert (await images.ask("python:3.11")).status is ImageStatus.READY


async def test_many_who_want_an_image_have_it_pulled_once_and_see_how_far_it_is() -> None:
    engine = FakeEngine()
    images = Images(engine, REGISTRIES)
    waiting = [asyncio.create_task(images.wait(A)) for _ in range(5)]
    assert (await images.ask(A)).status is ImageStatus.PULLING
    await until(lambda: engine.running == 1)
    state = await images.ask(A)
    assert (state.status, state.pulled, state.size) == (ImageStatus.PULLING, 3, 10)
    engine.go.set()
    await asyncio.gather(*waiting)
    assert engine.pulled == [A]
    assert (await images.ask(A)).status is ImageStatus.READY


async def test_a_failure_is_told_once_and_then_tried_again() -> None:
    engine = FakeEngine()
    engine.error, images = UnavailableError("no such image"), Images(engine, REGISTRIES)
    engine.go.set()
    assert (await images.ask(A)).status is ImageStatus.PULLING
    await until(lambda: engine.running == 0)
    await asyncio.sleep(0.05)
    failed = await images.ask(A)
    assert (failed.status, failed.error) == (ImageStatus.FAILED, "no such image.")
    engine.error = None
    assert (await images.ask(A)).status is ImageStatus.PULLING
    await until(lambda: A in engine.here)


async def test_a_failure_ends_the_wait_and_the_unforeseen_is_one_too() -> None:
    engine = FakeEngine()
    engine.go.set()
    for error, told in (
        (UnavailableError("no such image"), "no such image"),
        (
            RuntimeError("10.0.0.1:22 refused"),
            r"image reservoir:5000/a cannot be pulled\. Hint: see the agent's journal",
        ),
    ):
        engine.error = error
        with pytest.raises(PenstockError, match=told):
            await Images(engine, REGISTRIES).wait(A)


async def test_one_who_no_longer_waits_does_not_end_the_pull_of_the_others() -> None:
    engine = FakeEngine()
    images = Images(engine, REGISTRIES)
    gone, stays = (asyncio.create_task(images.wait(A)) for _ in range(2))
    await until(lambda: engine.running == 1)
    gone.cancel()
    engine.go.set()
    await stays
    assert gone.cancelled()


async def test_only_a_few_are_pulled_at_a_time() -> None:
    engine = FakeEngine()
    images = Images(engine, REGISTRIES)
    waiting = [asyncio.create_task(images.wait(f"{A}:{number}")) for number in range(3 * MAX_PULLS)]
    await until(lambda: engine.running == MAX_PULLS)
    await asyncio.sleep(0.05)
    engine.go.set()
    await asyncio.gather(*waiting)
    assert engine.most == MAX_PULLS
    assert len(engine.pulled) == 3 * MAX_PULLS


async def test_the_agent_ends_without_waiting_for_a_pull() -> None:
    engine = FakeEngine()
    images = Images(engine, REGISTRIES)
    await images.ask(A)
    await until(lambda: engine.running == 1)
    async with asyncio.timeout(60):
        await images.close()
    engine.go.set()
