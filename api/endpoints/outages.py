"""Outages of the database: what is the matter with it, and a check that it answers and can write."""

from __future__ import annotations

import asyncio
from typing import Annotated

import psycopg
from fastapi import Depends
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from starlette.requests import HTTPConnection

from api.database import Database
from common.errors import UnavailableError
from common.sentence import Sentence

ANSWER_S = 3.0
"""So long the check waits for an answer: a database that hangs says nothing, and who asks gives up sooner or later."""

FULL = (
    Sentence("the database has no room: its disk is full"),
    Sentence("tell the administrator: nothing can be changed until there is room on the disk of the database"),
)
READ_ONLY = (
    Sentence("the database takes no changes: it is read-only"),
    Sentence("tell the administrator: PostgreSQL is a standby, or was told to be read-only"),
)
CROWDED = (
    Sentence("the database takes no more connections"),
    Sentence("try again; if it stays so, tell the administrator: something else uses up its connections"),
)
RESTARTING = (
    Sentence("the database is starting or stopping"),
    Sentence("try again in a minute; if it stays so, tell the administrator"),
)
SILENT = (Sentence("the database does not answer"), Sentence("try again; if it stays so, tell the administrator"))

_BY_ERROR: tuple[tuple[type[psycopg.Error], tuple[str, str]], ...] = (
    (psycopg.errors.DiskFull, FULL),
    (psycopg.errors.ReadOnlySqlTransaction, READ_ONLY),
    (psycopg.errors.TooManyConnections, CROWDED),
    (psycopg.errors.AdminShutdown, RESTARTING),
    (psycopg.errors.CrashShutdown, RESTARTING),
    (psycopg.errors.CannotConnectNow, RESTARTING),
)
# An error while it connects has a text and no code: libpq keeps that to itself.
_BY_TEXT = (
    ("No space left on device", FULL),
    ("too many clients", CROWDED),
    ("remaining connection slots", CROWDED),
    ("too many connections", CROWDED),
    ("the database system is", RESTARTING),
)

# To keep these rows takes more than the memory that is given: they go into a file beside the data; no table grows.
_SMALL = text("SET LOCAL work_mem = '64kB'")
_SPILL = text("SELECT count(*) > 0 AND current_setting('transaction_read_only') = 'off' FROM generate_series(1, 8192)")


def reason_and_hint(error: Exception) -> tuple[str, str]:
    """Return what is the matter with the database, and what to do about it."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    for kind, told in _BY_ERROR:
        if isinstance(cause, kind):
            return told
    return next((told for words, told in _BY_TEXT if words in str(cause)), SILENT)


class WriteCheck:
    """Whether the database answers and can write; who asks while it is under way gets that answer, too."""

    def __init__(self, database: Database) -> None:
        """Prepare it; nothing is asked yet."""
        self._database = database
        self._asked: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Raise UnavailableError, or what the database raised, where it cannot write or does not answer soon."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._ask())
        asked = self._asked
        # left to itself: the driver waits for the database even to cancel, and more of them would take all connections
        done, _ = await asyncio.wait({asked}, timeout=ANSWER_S)
        if not done:
            raise _unavailable(SILENT)
        await asked

    async def _ask(self) -> None:
        async with self._database.transaction() as db:
            await db.execute(_SMALL)
            if not await db.scalar(_SPILL):
                raise _unavailable(READ_ONLY)


async def _write_check_of(connection: HTTPConnection) -> WriteCheck:
    check: WriteCheck = connection.app.state.write_check
    return check


WriteCheckOf = Annotated[WriteCheck, Depends(_write_check_of)]


def _unavailable(told: tuple[str, str]) -> UnavailableError:
    reason, hint = told
    return UnavailableError(reason, hint=hint)
