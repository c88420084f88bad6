"""What several processes do at the same moment: lead, place, delete what others are about to use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from api import database
from api.control.loop import Loop
from api.database import Database, Leadership
from api.resources.sandboxes import service as sandboxes
from api.resources.sessions import scheduling
from common.errors import UnavailableError
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import OF_LEADERS, body, delete

pytestmark = pytest.mark.anyio
NEVER_S = 3600.0


async def depose(database: Database) -> None:
    """End the connection that holds the leader's lock, as a network between two halves of a site does."""
    async with database.transaction() as db:
        assert (await db.execute(text(f"SELECT pg_terminate_backend(pid) {OF_LEADERS}"))).scalars().all() == [True]
    for _ in range(200):
        async with database.reading() as db:
            if not await db.scalar(text(f"SELECT count(*) {OF_LEADERS}")):
                return
        await asyncio.sleep(0.05)


async def leads(leadership: Leadership) -> bool:
    for _ in range(200):
        if await leadership.renew():
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_deposed_leader_gives_no_places_away(small: Cluster) -> None:
    """It has decided on the one GPU that there is; its successor gives that to somebody else before it writes."""
    other = Database(str(small.settings.database_url))
    old, new = Loop(small.database, small.settings), Loop(other, small.settings)
    await small.submit("first", gpu_milli=1000)
    async with small.database.leadership() as deposed, other.leadership() as successor:
        assert await deposed.renew()
        assert not await successor.renew()

        @asynccontextmanager
        async def overtaken() -> AsyncIterator[AsyncSession]:
            await depose(other)
            assert await leads(successor)
            await small.submit("urgent", gpu_milli=1000, kind="interactive")
            assert await new.run(successor.transaction) == 1
            async with deposed.transaction() as db:
                yield db

        with pytest.raises(OperationalError):
            await old.run(overtaken)
        assert await successor.renew(), "its transactions leave the lock alone"
    await other.close()
    assert await small.states() == {"first": "PENDING", "urgent": "SCHEDULED"}


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_leader_whose_reading_failed_leads_no_longer(small: Cluster, *, cancelled: bool) -> None:
    """Its connection is lost with the lock: on another one it would act beside its successor."""
    other = Database(str(small.settings.database_url))
    async with small.database.leadership() as old, other.leadership() as successor:
        assert await old.renew()

        async def look() -> None:
            async with old.reading() as db:
                await db.execute(text("SELECT pg_sleep(60)"))

        looking = asyncio.create_task(look())
        await asyncio.sleep(0.5)
        if cancelled:
            looking.cancel()
        else:
            await depose(other)
        with pytest.raises(asyncio.CancelledError if cancelled else UnavailableError):
            await looking
        assert await leads(successor)
        with pytest.raises(UnavailableError):
            await old.renew()
        with pytest.raises(OperationalError):
            async with old.transaction():
                pass
        assert not old.held
    await other.close()


async def test_a_leader_stays_one_however_long_its_work_waits(small: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SILENT_S", 1.0)
    monkeypatch.setattr(database, "STAY_S", 0.2)
    async with small.database.leadership() as leadership:
        assert await leadership.renew()
        await asyncio.sleep(2)
        async with leadership.transaction() as db:
            assert await db.scalar(text("SELECT 1"))


async def test_a_leader_that_reads_says_nothing_beside_it(small: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "STAY_S", 0.5)
    async with small.database.leadership() as leadership:
        assert await leadership.renew()
        renewed = []
        monkeypatch.setattr(leadership, "renew", lambda: renewed.append(True))
        for _ in range(30):
            async with leadership.reading() as db:
                assert await db.scalar(text("SELECT 1"))
            await asyncio.sleep(0.05)
        assert not renewed


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_one_that_says_nothing_leads_no_longer(
    small: Cluster, monkeypatch: pytest.MonkeyPatch, *, in_transaction: bool
) -> None:
    """As one that stands still: its connections live, and with them what it has locked."""
    monkeypatch.setattr(database, "SILENT_S", 1.0)
    monkeypatch.setattr(database, "STAY_S", NEVER_S)
    still, other = Database(str(small.settings.database_url)), Database(str(small.settings.database_url))
    async with still.leadership() as silent, other.leadership() as successor:
        assert await silent.renew()
        assert not await successor.renew()
        async with AsyncExitStack() as stack:
            if in_transaction:
                await stack.enter_async_context(silent.transaction())
            assert await leads(successor)
        with pytest.raises(UnavailableError):
            await silent.renew()
    await still.close()
    await other.close()


async def test_nobody_is_stopped_for_who_was_deleted_before_that_is_written(ready: Cluster) -> None:
    await ready.add_project("team-b", 0)
    await ready.submit("guest", gpu_milli=4000, project="team-b")
    await ready.settle()
    await ready.submit("owner", gpu_milli=2000)

    @asynccontextmanager
    async def overtaken() -> AsyncIterator[AsyncSession]:
        await delete(ready, "owner")
        async with ready.database.transaction() as db:
            yield db

    await ready.manager.loop.run(overtaken)
    assert ready.manager.loop.last is not None
    assert ready.manager.loop.last.decision.reclaims, "it was decided"
    assert await ready.states("team-b") == {"guest": "RUNNING"}


class Pause:
    """Lets a coroutine function wait when it is called, for as long as a test needs to let others go ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.reached, self.goes_on = asyncio.Event(), asyncio.Event()
        function = getattr(module, name)

        async def paused(*args: Any) -> Any:
            self.reached.set()
            await self.goes_on.wait()
            return await function(*args)

        monkeypatch.setattr(module, name, paused)

    async def against(self, slow: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, Any]) -> tuple[Any, Any]:
        """Return what came of `slow`, and of the other one, which begins while that waits."""
        first = asyncio.create_task(slow)
        await self.reached.wait()
        second = asyncio.create_task(other)
        await asyncio.wait([second], timeout=1)
        self.goes_on.set()
        return await first, await second


async def test_a_node_on_which_a_session_is_just_being_placed_is_not_empty(
    small: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small.submit("demo", gpu_milli=1000)
    pause = Pause(monkeypatch, scheduling, "start")
    node = f"{V1}/nodes/worker1"

    async def remove() -> str:
        await ok(small.admin.patch(f"{node}/mode", json={"mode": "maintenance"}))
        return (await refused(small.admin.delete(node), 409))["reason"]

    placed, reason = await pause.against(small.manager.loop.run(), remove())
    assert (placed, reason) == (1, "worker1 is ready and maintenance, with 1 live sessions")
    assert await small.states() == {"demo": "SCHEDULED"}


async def test_a_user_who_is_just_submitting_has_a_session(small: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await small.user("alice") as alice:
        await ok(small.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        pause = Pause(monkeypatch, sandboxes, "for_session")
        submitted, removed = await pause.against(
            alice.post(f"{V1}/sessions", json=body()), small.admin.delete(f"{V1}/users/alice")
        )
    assert (submitted.status_code, removed.status_code) == (201, 409)
    assert (await small.session("demo"))["user"] == "alice"
