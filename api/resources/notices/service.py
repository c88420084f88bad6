"""Rules of notices: who may tell everybody something, and what is told now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from sqlalchemy import case, or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.clock import now
from api.database import Database
from api.resources.notices.schemas import NoticeRequest, NoticeView
from api.tables.notices import Notice, NoticeLevel
from common.errors import ConflictError, InputError, NotFoundError
from common.sentence import Sentence

MOST = 20
"""So many notices there are at most that are not over: more than that nobody reads."""
REMEMBERED_S = 5.0
"""For so long every page of a process shows what was told when it was last looked at."""

_gravity = case({NoticeLevel.OUTAGE: 0, NoticeLevel.WARNING: 1}, value=Notice.level, else_=2)


async def listed(db: AsyncSession, at: datetime, *, coming: bool = False) -> list[NoticeView]:
    """Return what is told at a moment, what matters most first; `coming` adds what will be."""
    query = select(Notice).where(or_(Notice.ends_at.is_(None), Notice.ends_at > at))
    query = query if coming else query.where(Notice.starts_at <= at)
    rows = await db.scalars(query.order_by(_gravity, Notice.starts_at, Notice.id))
    return [NoticeView.model_validate(row) for row in rows]


async def create(db: AsyncSession, request: NoticeRequest, caller: Identity) -> Notice:
    """Tell everybody something; raises InputError where it is over, ConflictError where too much is told already."""
    moment = now()
    if request.ends_at and request.ends_at <= moment:
        raise InputError(Sentence("it is over"), where="ends_at", hint=Sentence("write a later end"))
    if len(await listed(db, moment, coming=True)) >= MOST:
        raise ConflictError(Sentence("there are {count} notices already", count=MOST), hint=Sentence("end one first"))
    values = request.model_dump(mode="python") | {"starts_at": request.starts_at or moment}
    notice = Notice(**values, user_name=caller.name)
    db.add(notice)
    await db.flush()
    return notice


async def end(db: AsyncSession, notice_id: UUID) -> None:
    """Tell a notice no more; the audit log keeps what it said. Raises NotFoundError."""
    notice = await db.get(Notice, notice_id)
    if notice is None:
        raise NotFoundError(
            Sentence("there is no notice {id}", id=str(notice_id)),
            where="notice_id",
            hint=Sentence("list the notices"),
        )
    await db.delete(notice)


class Board:
    """Remembers for a moment what is told, for every page shows it; one for each process."""

    def __init__(self, database: Database) -> None:
        """Start with nothing remembered."""
        self._database = database
        self._notices: Sequence[NoticeView] = ()
        self._read_at = float("-inf")

    def forget(self) -> None:
        """Look again the next time."""
        self._read_at = float("-inf")

    async def shown(self) -> list[NoticeView]:
        """Return what is told now; where the database does not answer, what was told before."""
        if self._read_at + REMEMBERED_S < time.monotonic():
            self._read_at = time.monotonic()
            with suppress(SQLAlchemyError):
                async with self._database.reading() as db:
                    self._notices = await listed(db, now(), coming=True)
        moment = now()
        return [
            each
            for each in self._notices
            if each.starts_at <= moment and (each.ends_at is None or each.ends_at > moment)
        ]
