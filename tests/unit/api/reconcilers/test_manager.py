"""How many sessions are operated on at once, and who waits for whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.reconcilers import manager as managing
from tests.unit.api.conftest import Cluster
from tests.unit.api.reconcilers.conftest import delete, run

pytestmark = pytest.mark.anyio


async def test_stops_that_hang_keep_nobody_from_starting(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managing, "MAX_STOPS", 1)
    monkeypatch.setattr(managing, "MAX_STARTS", 1)
    for name in ("one", "two"):
        await run(ready, name)
    terminate, goes_on, asked = ready.engine.terminate, asyncio.Event(), list[str]()

    async def hanging(target: Any, container_id: str, grace_s: int) -> None:
        asked.append(container_id)
        await goes_on.wait()
        await terminate(target, container_id, grace_s)

    monkeypatch.setattr(ready.engine, "terminate", hanging)
    for name in ("one", "two"):
        await delete(ready, name)
    await ready.submit("three")
    await ready.submit("four")
    async with asyncio.timeout(20):
        while (await ready.states()) != dict.fromkeys(("one", "two"), "TERMINATING") | dict.fromkeys(
            ("three", "four"), "RUNNING"
        ):
            await ready.manager._pass()
            await asyncio.sleep(0.01)
    assert len(asked) == 1, "the other one waits for its turn"
    goes_on.set()
    await ready.manager.settle()
    assert (await ready.states())["two"] == "TERMINATED"
