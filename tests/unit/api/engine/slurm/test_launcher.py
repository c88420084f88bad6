"""The launcher of Slurm, whose commands say what a test lets them say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from anyio import to_thread

from api.engine.launcher import LeasedNode
from api.engine.slurm.launcher import AT_ONCE, SlurmLauncher
from common import process
from common.lease_protocol import Lease

pytestmark = pytest.mark.anyio

OWNER = UUID(int=1)
PLACE = LeasedNode("worker1", 500, 1, 64)


async def own() -> UUID:
    return OWNER


async def test_submissions_that_wait_for_slurm_keep_no_listing_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sbatch` tries again by itself where Slurm holds as many jobs as it may."""
    go_on = threading.Event()

    def run(words: Sequence[str], **_: Any) -> str:
        if words[0] == "sbatch":
            go_on.wait(60)
            return "1\n"
        return ""

    monkeypatch.setattr(process, "run", run)
    launcher = SlurmLauncher("penstock", own, lend_s=0)
    asked = [asyncio.create_task(launcher.admit(Lease(uuid4(), 0), [PLACE])) for _ in range(AT_ONCE + 1)]
    try:
        await launcher.watch()
        await asyncio.sleep(1)
        async with asyncio.timeout(30):
            await launcher.watch()
        assert not any(task.done() for task in asked)
    finally:
        go_on.set()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_commands_that_hang_take_no_thread_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler decides in threads that all share: a small machine has six of them."""
    began, go_on = threading.Event(), threading.Event()

    def run(words: Sequence[str], **_: Any) -> str:
        began.set()
        go_on.wait(60)
        return ""

    monkeypatch.setattr(process, "run", run)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    listing = asyncio.create_task(SlurmLauncher("penstock", own).watch())
    try:
        assert await to_thread.run_sync(began.wait, 30)
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(int) == 0
    finally:
        go_on.set()
        await asyncio.gather(listing, return_exceptions=True)


LISTED = "{}|RUNNING|None|penstock:{}:0:" + str(OWNER)


class Numbered:
    """A Slurm that gives numbers from `first` on: `told` is what it was asked for, `listings` what it lists next."""

    def __init__(self, first: int, *listings: str) -> None:
        self.told: list[str] = []
        self.listings = [*listings]
        self.submitted = threading.Event()
        self.submitted.set()
        self._numbers = iter(range(first, first + 1000))

    def run(self, words: Sequence[str], **_: Any) -> str:
        if words[0] == "squeue":
            listed = self.listings.pop(0)
            assert self.submitted.wait(60)
            return listed
        if words[0] == "sbatch":
            number = next(self._numbers)
            self.told.append(f"{number} waits" if "--hold" in words else f"{number} begins")
            return f"{number};north\n"
        if words[0] == "scancel":
            self.told.append(f"{words[-1]} cancelled")
        return ""


@pytest.mark.parametrize(
    ("forgotten", "first", "told"),
    [
        pytest.param(7, 6, ["6 waits", "6 cancelled", "7 waits", "7 cancelled", "8 begins"], id="its-last-seconds"),
        pytest.param(5000, 1, ["1 waits", "1 cancelled", "2 begins"], id="all-it-knew"),
    ],
)
async def test_numbers_of_jobs_that_a_controller_forgot_are_used_up_unless_it_begins_anew(
    monkeypatch: pytest.MonkeyPatch, forgotten: int, first: int, told: list[str]
) -> None:
    lease = Lease(uuid4(), 0)
    begins = told[-1].partition(" ")[0]
    slurm = Numbered(first, LISTED.format(forgotten, uuid4()), "", "", LISTED.format(begins, lease.session_id))
    monkeypatch.setattr(process, "run", slurm.run)
    launcher = SlurmLauncher("penstock", own)
    await launcher.watch()
    await launcher.watch()
    await launcher.admit(lease, [PLACE])
    assert slurm.told == told


async def test_a_job_that_is_asked_for_during_a_listing_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease(uuid4(), 0)
    first = LISTED.format(7, lease.session_id)
    slurm = Numbered(7, "", "", first, first, f"{first}\n{LISTED.format(8, uuid4())}")
    monkeypatch.setattr(process, "run", slurm.run)
    launcher = SlurmLauncher("penstock", own)
    await launcher.watch()
    slurm.submitted.clear()
    watched = asyncio.create_task(launcher.watch())
    while len(slurm.listings) > 3:  # noqa: ASYNC110 - it is listed in a thread
        await asyncio.sleep(0.01)
    await launcher._submit(lease, [PLACE])
    slurm.submitted.set()
    await watched
    await launcher._submit(Lease(uuid4(), 0), [PLACE])
    assert slurm.told == ["7 begins", "8 begins"]
