"""Stamps: whether what a page shows may have changed, told by one query for all who look."""

from __future__ import annotations

import time
from functools import cache
from hashlib import sha256

from sqlalchemy import Select, Table, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.lists.texts import said, server
from api.tables.base import Base
from api.tables.domains import Domain
from api.tables.projects import Membership, Project
from api.tables.sessions import LISTED, Session
from api.tables.user_policies import UserPolicy
from api.tables.users import User
from api.tables.written import written

PEOPLE: tuple[type[Base], ...] = (User, Membership, Project, Domain, UserPolicy)
"""What says who sees what, and how much anybody may have."""
MINUTE_S = 60
"""Pages tell how long ago something was, to the minute."""

SEEN_S = 1.0
"""For so long it is remembered what was written last: whoever looks at a page asks for it again and again."""
NEVER = float("-inf"), ""
KEPT = 100
"""So many parts of pages are kept; each has as many rows as its page shows."""

Tables = tuple[type[Base] | Table, ...]


class Stamps:
    """Remembers for a moment what says whether tables were written, which is the same for all; one for each process.

    A stamp may be older than what is read after it, never newer: then the next one is another, and all is read again.
    Parts of pages are kept by their stamps, the last ones, for those who ask for the same at the same stamp.
    """

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._seen: dict[Tables, tuple[float, str]] = {}
        self._parts: dict[str, str] = {}

    async def stamp(self, db: AsyncSession, tables: Tables, *more: object) -> str:
        """Return a text that is another one whenever rows of tables are, or `more`, or a minute is over.

        Of sessions those count that a list has unless all are asked for.
        """
        asked_at = time.monotonic()
        seen_at, found = before = self._seen.get(tables, NEVER)
        if seen_at + SEEN_S < asked_at:
            asked = asked_at, found
            if before != NEVER:
                # who comes meanwhile does not ask, too, nor waits: another one does where this takes too long
                self._seen[tables] = asked
            try:
                found = str(await db.scalar(_marks(tables)))
            except BaseException:
                if self._seen.get(tables) is asked:
                    self._seen[tables] = before
                raise
            self._seen[tables] = asked_at, found
        minute = int(now().timestamp()) // MINUTE_S
        return sha256(repr((found, minute, more)).encode()).hexdigest()[:16]

    def keep(self, stamp: str, part: str) -> None:
        """Keep a part of a page that was made after a stamp, and of nothing that the stamp does not tell of."""
        self._parts[stamp] = part
        while len(self._parts) > KEPT:
            del self._parts[next(iter(self._parts))]

    def kept(self, stamp: str) -> str | None:
        """Return the part that is kept for a stamp."""
        return self._parts.get(stamp)


@cache
def _marks(tables: Tables) -> Select[tuple[str]]:
    parts = []
    for table in tables:
        query = select(said(*written(table))).select_from(table)
        parts.append((query.where(LISTED) if table is Session else query).scalar_subquery())
    return select(said(server(), *parts))
