"""The queue of the whole site, page by page, in the order in which it was served last."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, case, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

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


async def page(db: AsyncSession, *, limit: int, after: str | None) -> tuple[list[QueueEntryView], str | None]:
    """Return sessions that wait, and the cursor after which others follow; raises InputError for what is no cursor."""
    query = select(*_COLUMNS, *_NAMES, Session.reason_parts, _place.label("place")).join(
        Project, Project.id == Session.project_id
    )
    query = query.where(Session.state == State.PENDING)
    order = (_place, Session.created_at, Session.id)
    if after is not None:
        place, _, rest = after.partition(".")
        begins = session_pages.position(rest)
        query = query.where(tuple_(*order) > tuple_(int(place), begins["created_at"], begins["id"]))
    rows = (await db.execute(query.order_by(*order).limit(limit + 1))).all()
    entries = [_entry(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return entries, None
    last = rows[limit - 1]
    return entries, f"{last.place}.{session_pages.cursor(last.created_at, last.id)}"


def _entry(row: Row[*tuple[Any, ...]]) -> QueueEntryView:
    return QueueEntryView.model_validate({**row._asdict(), "reason": sentence_of(row.reason, row.reason_parts)})
