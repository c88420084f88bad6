"""The database as the API uses it: which kinds, one leader among processes, and moments in UTC."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from itertools import combinations_with_replacement, product
from typing import LiteralString

import pytest
from sqlalchemy import Integer, insert, select, text
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    StatementError,
)

from api.database import Begin, Database, Leadership, fingerprint, open_with, rows_of
from api.tables.audit import AuditEvent
from api.tables.domains import Domain
from common.errors import InputError, UnavailableError
from tests.api.steps import OF_LEADERS

pytestmark = pytest.mark.anyio

NOTE = """INSERT INTO audit_events (id, at, entry)
SELECT $1, now(), jsonb_build_object('text', $2, 'at_once', now() = statement_timestamp())"""
"""A statement that opens a transaction, and notes whether it came in one message with its `BEGIN`."""


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


@pytest.mark.parametrize("told", ["it's", "\\' || version() --", "$1, $2; %s %(x)s {}", "Größe 한국어", ""])
async def test_a_statement_opens_a_transaction_in_one_message_with_texts_as_they_are(
    database_url: str, told: str
) -> None:
    database = Database(database_url)
    try:
        for name in ("first", "again"):
            await note(database, name, told)
        # what the driver prepares itself by now it lets go with all that is prepared when a transaction is undone
        for _ in range(7):
            await noted(database)
        with pytest.raises(IntegrityError):
            await note(database, "undone", told, "again")
        names = ["first", "again", "afterwards", "at last"]
        for name in names[2:]:
            await note(database, name, told)
        assert await noted(database) == {name: {"text": told, "at_once": True} for name in names}
    finally:
        await database.close()


async def test_a_statement_that_fails_to_open_a_transaction_is_an_error_of_the_database_which_goes_on(
    database_url: str,
) -> None:
    database = Database(database_url)
    try:
        with pytest.raises(ProgrammingError, match="nothing"):
            await note(database, "first", statement="INSERT INTO nothing SELECT $1, $2")
        with pytest.raises(DataError, match="too long"):
            await note(database, "long" * 32)
        await note(database, "first")
        with pytest.raises(IntegrityError, match="first"):
            await note(database, "first")
        assert list(await noted(database)) == ["first"]
    finally:
        await database.close()


async def test_whoever_is_cancelled_while_a_statement_opens_a_transaction_leaves_a_connection_that_can(
    database_url: str,
) -> None:
    for turn in range(20):
        database = Database(database_url)
        try:
            await noted(database)
            task = asyncio.create_task(note(database, f"cancelled-{turn}"))
            await asyncio.sleep(turn * 0.0003)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await note(database, f"noted-{turn}")
            assert f"noted-{turn}" in await noted(database)
        finally:
            await database.close()


async def note(database: Database, name: str, told: str = "", *more: str, statement: LiteralString = NOTE) -> None:
    """Open a transaction with a note, and add those of `more` to it."""
    async with database.transaction() as db:
        await open_with(db, statement, [name, told])
        for other in more:
            await db.execute(insert(AuditEvent).values(id=other, entry={}))


async def noted(database: Database) -> dict[str, dict[str, object]]:
    """Return what is noted, by its id."""
    async with database.reading() as db:
        return {row.id: row.entry for row in await db.execute(select(AuditEvent.id, AuditEvent.entry))}
