"""The queue, page by page, in the order in which it was served last: of the whole site, or what somebody sees of it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, case, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.lists import session_pages
from api.resources.sessions.views import QueueEntryView
from api.tables.projects import Project
from api.tables.sessions import Session, State
from common.sentence import sentence_of

LAST = 2**31 - 1
"""The place of those that are in no order yet."""

_NAMES = [Project.name.label("project"), Session.user_name.label("user")]
_COLUMNS = [getattr(Session, name) for name in QueueEntryView.model_fields if name not in ("project", "user")]
_place = case((Session.position == 0, LAST), else_=Session.position)


async def page(
    db: AsyncSession, caller: Identity | None, *, limit: int, after: str | None = None
) -> tuple[list[QueueEntryView], str | None]:
    """Return sessions that wait and that a caller sees, or (None) all, and the cursor after which others follow.

    Raises InputError for what is no cursor.
    """
    asked = session_pages.reached(caller) if caller else {}
    query = select(*_COLUMNS, *_NAMES, Session.reason_parts, _place.label("place")).join(
        Project, Project.id == Session.project_id
    )
    query = query.where(Session.state == State.PENDING, *session_pages.within(asked))
    order = (_place, Session.created_at, Session.id)
    if after is not None:
        place, _, rest = after.partition(".")
        begins = session_pages.position(rest)
        query = query.where(tuple_(*order) > tuple_(int(place), begins["created_at"], begins["id"]))
    rows = (await db.execute(query.order_by(*order).limit(limit + 1), asked)).all()
    entries = [_entry(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return entries, None
    last = rows[limit - 1]
    return entries, f"{last.place}.{session_pages.cursor(last.created_at, last.id)}"


async def others(db: AsyncSession, caller: Identity) -> int:
    """Return how many sessions wait that a caller does not see."""
    asked = session_pages.reached(caller)
    waits = select(func.count()).select_from(Session).where(Session.state == State.PENDING)
    seen = waits.join(Project, Project.id == Session.project_id).where(*session_pages.within(asked))
    return (await db.scalar(waits) or 0) - (await db.scalar(seen, asked) or 0) if asked else 0


def _entry(row: Row[*tuple[Any, ...]]) -> QueueEntryView:
    return QueueEntryView.model_validate({**row._asdict(), "reason": sentence_of(row.reason, row.reason_parts)})
