"""What says whether something was written: asked for by one of all who look, and never newer than what is read then."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from api.lists import stamps
from api.lists.stamps import PEOPLE, SEEN_S, Stamps
from tests.api.cluster import Cluster

pytestmark = pytest.mark.anyio


class Watch:
    """The clock that stamps look at; it stands still unless a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = time.monotonic()
        monkeypatch.setattr(stamps, "time", SimpleNamespace(monotonic=lambda: self.passed))
        monkeypatch.setattr(stamps, "MINUTE_S", 1 << 40)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


async def stamp(cluster: Cluster, remembered: Stamps) -> str:
    async with cluster.database.reading() as db:
        return await remembered.stamp(db, PEOPLE)


async def test_of_all_who_look_at_one_moment_one_asks(cluster: Cluster, watch: Watch, statements: list[str]) -> None:
    remembered = Stamps()
    before = await stamp(cluster, remembered)
    await cluster.add_project()
    watch.passed += SEEN_S + 1
    statements.clear()
    found = await asyncio.gather(*(stamp(cluster, remembered) for _ in range(20)))
    assert len([each for each in statements if "xmin" in each]) == 1
    assert len({*found, before}) == 2, "who asks hears of it, and the others as before"
    assert await stamp(cluster, remembered) != before


async def test_where_it_cannot_be_asked_for_the_next_one_asks_at_once(
    cluster: Cluster, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered = Stamps()
    before = await stamp(cluster, remembered)
    await cluster.add_project()
    watch.passed += SEEN_S + 1

    async def fail(*_: object) -> None:
        raise TimeoutError

    with monkeypatch.context() as broken:
        broken.setattr(AsyncSession, "scalar", fail)
        with pytest.raises(TimeoutError):
            await stamp(cluster, remembered)
    assert await stamp(cluster, remembered) != before


async def test_who_asks_for_long_keeps_nobody_from_asking(
    cluster: Cluster, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered, real = Stamps(), AsyncSession.scalar
    before = await stamp(cluster, remembered)
    await cluster.add_project()
    watch.passed += SEEN_S + 1
    asked, answered = asyncio.Event(), asyncio.Event()

    async def hang(*how: Any) -> Any:
        asked.set()
        await answered.wait()
        return await real(*how)

    with monkeypatch.context() as slow:
        slow.setattr(AsyncSession, "scalar", hang)
        waiting = asyncio.create_task(stamp(cluster, remembered))
        await asked.wait()
    assert await stamp(cluster, remembered) == before
    watch.passed += SEEN_S + 1
    after = await stamp(cluster, remembered)
    assert after != before
    answered.set()
    assert await waiting == after


async def test_where_nothing_is_remembered_nobody_waits_for_another(
    cluster: Cluster, watch: Watch, statements: list[str]
) -> None:
    remembered = Stamps()
    found = await asyncio.gather(*(stamp(cluster, remembered) for _ in range(3)))
    assert len(set(found)) == 1
    assert len([each for each in statements if "xmin" in each]) == 3
    assert await stamp(cluster, remembered) == found[0]
