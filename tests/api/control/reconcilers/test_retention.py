"""Retention: what has ended goes after its time, accounting stays as sums, and what is left costs no more."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from api.clock import now
from api.control.reconcilers import retention
from api.control.reconcilers.failures import Failures
from api.control.reconcilers.timed import TIDY_S, TimedReconciler
from api.resources.accounting import service as accounting
from api.tables.accounting import AccountingDay, Span
from api.tables.api_keys import ApiKey
from api.tables.logins import Login
from api.tables.sessions import Container, Session, SessionLog
from tests import history
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.resources.accounting.test_accounting import Ran, figures, report
from tests.api.resources.accounting.test_accounting import run as account
from tests.api.steps import delete, run

pytestmark = pytest.mark.anyio

DAY = 24 * 3600


async def count(cluster: Cluster, *tables: type) -> list[int]:
    async with cluster.database.reading() as db:
        return [int(await db.scalar(select(func.count()).select_from(table)) or 0) for table in tables]


async def forget(cluster: Cluster, days: float) -> None:
    """Let the reconcilers look at what is kept, so many days later."""
    await retention.apply(cluster.database, cluster.settings, now() + timedelta(days=days))


async def test_ended_sessions_go_after_their_time_and_others_stay(ready: Cluster) -> None:
    await run(ready, "old")
    await delete(ready, "old")
    await run(ready, "live")
    await ready.settle()
    await forget(ready, 89)
    assert await ready.states() == {"old": "TERMINATED", "live": "RUNNING"}
    await forget(ready, 91)
    assert await ready.states() == {"live": "RUNNING"}
    assert await count(ready, Session, Container, SessionLog) == [1, 1, 0]


async def test_many_go_in_parts(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PART", 100)
    await asyncio.to_thread(history.fill, ready.database, 350)
    with history.noted(ready.database) as sent:
        await forget(ready, 200)
    assert await count(ready, Session) == [0]
    assert len([statement for statement, _ in sent if statement.startswith("DELETE FROM sessions")]) == 4


async def test_the_reconcilers_do_so_by_themselves(ready: Cluster) -> None:
    await run(ready, "old")
    await delete(ready, "old")
    await ready.settle()
    async with ready.database.transaction() as db:
        await db.execute(update(Session).values(finished_at=now() - timedelta(days=91)))
    ready.clock.passed += 601
    await ready.settle()
    assert await ready.states() == {}


async def test_who_has_just_started_forgets_nothing_yet(ready: Cluster) -> None:
    """A clock that is far ahead when a machine starts is put right within minutes."""
    await run(ready, "old")
    await delete(ready, "old")
    await ready.settle()
    ready.clock.ahead = timedelta(days=91)
    timed = TimedReconciler(ready.database, ready.settings, ready.clock, Failures())
    await timed.apply()
    assert await ready.states() == {"old": "TERMINATED"}
    ready.clock.passed += TIDY_S
    await timed.apply()
    assert await ready.states() == {}


async def test_logins_and_keys_that_ended_go(ready: Cluster) -> None:
    async with ready.client() as browser:
        await sign_in(browser, "admin")
        await ok(browser.post(f"{V1}/api-keys", json={"name": "short", "days": 1}))
    assert await count(ready, Login, ApiKey) == [1, 2]
    await forget(ready, 1)
    assert await count(ready, Login, ApiKey) == [0, 2], "a key that has ended is still listed for a while"
    await forget(ready, 32)
    assert await count(ready, Login, ApiKey) == [0, 1]


async def test_accounting_stays_as_sums_by_day(cluster: Cluster) -> None:
    """Sessions over midnight, put back into the queue, of several people and domains."""
    await account(cluster, Ran("alice", "team-a", 500), (1, 3))
    await account(cluster, Ran("alice", "team-b", 4000, domain="acme"), (20, 30), (31, 60))
    await account(cluster, Ran("bobby", "team-a", 0), (0, 10))
    wanted = [await report(cluster.admin, by, 0, 72) for by in ("user", "project", "domain")]
    first_day = await report(cluster.admin, "user", 0, 24)
    async with cluster.database.transaction() as db:
        assert await accounting.add_up(db, now() + timedelta(days=1), 100) == 3
    assert await count(cluster, Span) == [0]
    assert [await report(cluster.admin, by, 0, 72) for by in ("user", "project", "domain")] == wanted
    assert figures(await report(cluster.admin, "user", 0, 24)) == figures(first_day)


async def test_a_session_is_added_up_when_all_of_it_has_ended(cluster: Cluster) -> None:
    await account(cluster, Ran("alice", "team-a", 500), (1, 3), (5, None))
    async with cluster.database.transaction() as db:
        assert await accounting.add_up(db, now(), 100) == 0
    assert await count(cluster, Span, AccountingDay) == [2, 0]


async def test_what_has_ended_is_not_read_again(ready: Cluster) -> None:
    await run(ready, "live")
    await asyncio.to_thread(history.fill, ready.database, 5000)
    asked: dict[str, dict[str, str]] = {f"{V1}/sessions/train1": {"project": "team-a"}, f"{V1}/nodes": {}}
    for path, params in (asked | {f"{V1}/nodes/worker1": {}}).items():
        with history.noted(ready.database) as sent:
            await ok(ready.admin.get(path, params=params))
        assert history.rows_read(ready.database, sent) < 100, path


async def test_of_a_report_the_sums_come_back_alone(ready: Cluster, statements: list[str]) -> None:
    await asyncio.to_thread(history.fill, ready.database, 1000)
    before = await ok(ready.admin.get(f"{V1}/accounting"))
    statements.clear()
    told = await ok(ready.admin.get(f"{V1}/accounting"))
    assert told["total"] == before["total"]
    assert (told["total"]["sessions"], told["total"]["session_seconds"]) == (1000, 3_600_000.0)
    assert len([statement for statement in statements if "sum(" in statement]) == 5
