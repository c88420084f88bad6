"""The launcher of Slurm, whose commands say what a test lets them say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

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


async def test_numbers_of_jobs_that_were_forgotten_are_used_up_before_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lease, listings, numbers = Lease(uuid4(), 0), [], iter(range(6, 20))
    told: list[str] = []
    running = "{}|RUNNING|None|penstock:{}:0:" + str(OWNER)
    listings += [running.format(7, uuid4()), "", "", running.format(8, lease.session_id)]

    def run(words: Sequence[str], **_: Any) -> str:
        if words[0] == "squeue":
            return listings.pop(0)
        if words[0] == "sbatch":
            number = next(numbers)
            told.append(f"{number} waits" if "--hold" in words else f"{number} begins")
            return f"{number};north\n"
        if words[0] == "scancel":
            told.append(f"{words[-1]} cancelled")
        return ""

    monkeypatch.setattr(process, "run", run)
    launcher = SlurmLauncher("penstock", own)
    await launcher.watch()
    await launcher.watch()
    await launcher.admit(lease, [PLACE])
    assert told == ["6 waits", "6 cancelled", "7 waits", "7 cancelled", "8 begins"]
