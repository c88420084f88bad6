"""The database as the API uses it: which kinds, one leader among processes, and moments in UTC."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from itertools import combinations_with_replacement, product

import pytest
from sqlalchemy import Integer, select, text
from sqlalchemy.exc import DBAPIError, OperationalError, StatementError

from api.database import Begin, Database, Leadership, fingerprint, rows_of
from api.tables.domains import Domain
from common.errors import InputError, UnavailableError
from tests.api.steps import OF_LEADERS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("url", ["sqlite+aiosqlite:///penstock.db", "mysql://db/penstock", "postgresql://db/it", ""])
def test_only_postgresql_is_a_database_of_ours(url: str) -> None:
    with pytest.raises(InputError) as refused:
        Database(url)
    assert refused.value.problems[0].where == "PENSTOCK_API_DATABASE_URL"
    assert "postgresql+psycopg://" in refused.value.problems[0].hint


async def test_one_process_leads(database_url: str) -> None:
    first, second = Database(database_url), Database(database_url)
    try:
        async with second.leadership() as follower:
            async with first.leadership() as leader:
                assert await leader.renew()
                assert await leader.renew()
                assert not await follower.renew()
            # the leader's connection has ended, and its lock with it: the server notices in its own time
            leads = False
            for _ in range(200):
                leads = leads or await follower.renew()
                await asyncio.sleep(0 if leads else 0.05)
            assert leads
    finally:
        await first.close()
        await second.close()


async def test_who_has_lost_the_lock_writes_no_more_whatever_ended_the_connection(database_url: str) -> None:
    """PostgreSQL itself ends one that was idle in its transaction, which is no failure of operation for its driver."""
    database = Database(database_url)
    try:
        async with database.leadership() as leader:
            assert await leader.renew()
            with pytest.raises(DBAPIError):
                await stay_idle(database, leader)
            with pytest.raises(OperationalError, match="lock is lost"):
                await ask(leader.transaction)
            with pytest.raises(UnavailableError):
                await ask(leader.reading)
            with pytest.raises(UnavailableError):
                await leader.renew()
            assert not leader.held
    finally:
        await database.close()


async def ask(begin: Begin) -> None:
    async with begin() as db:
        await db.execute(text("SELECT 1"))


async def stay_idle(database: Database, leader: Leadership) -> None:
    """Let PostgreSQL end the leader's connection in a transaction."""
    async with leader.transaction() as db:
        await db.execute(text("SET LOCAL idle_in_transaction_session_timeout = 1"))
        await ended(database)
        await db.execute(text("SELECT 1"))


async def ended(database: Database) -> None:
    """Wait until the leader's connection is gone."""
    for _ in range(600):
        async with database.reading() as db:
            if not await db.scalar(text(f"SELECT count(*) {OF_LEADERS}")):
                return
        await asyncio.sleep(0.05)


async def test_no_report_is_compiled_before_it_reads(database_url: str) -> None:
    """Whatever the server does for others."""
    database = Database(database_url)
    try:
        async with database.reading() as db:
            asked = await db.execute(text("SELECT setting, source FROM pg_settings WHERE name = 'jit'"))
            assert asked.one() == ("off", "client")
    finally:
        await database.close()


async def test_moments_are_read_in_utc_wherever_the_server_is(database_url: str) -> None:
    moment = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    database = Database(database_url)
    try:
        async with database.transaction() as db:
            await db.execute(text("SET LOCAL TIME ZONE 'Asia/Tokyo'"))
            db.add(Domain(name="acme", description="", created_at=moment))
            await db.flush()
            db.expunge_all()
            read = (await db.scalars(select(Domain.created_at))).one()
        assert (read, read.tzinfo) == (moment, UTC)
        with pytest.raises(StatementError, match="has no time zone"):
            async with database.transaction() as db:
                db.add(Domain(name="globex", description="", created_at=datetime(2026, 7, 1)))  # noqa: DTZ001 -- refused
    finally:
        await database.close()


async def test_rows_that_change_values_with_each_other_have_another_fingerprint(database_url: str) -> None:
    """All tables of two rows of numbers below 4 and nothing: no two of them, in whatever order, have the same one."""
    values = (None, 0, 1, 2, 3)
    tables = list(combinations_with_replacement(product(values, values), 2))
    database = Database(database_url)
    found = set()
    async with database.reading() as db:
        for table in tables:
            rows = rows_of(
                {"one": (Integer(), [one for one, _ in table]), "two": (Integer(), [two for _, two in table])}
            )
            found.add(await db.scalar(select(fingerprint(rows.c.one, rows.c.two))))
    await database.close()
    assert len(found) == len(tables)
