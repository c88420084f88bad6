"""Events of sessions: what became of one so far."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.sessions.views import SessionEventView
from api.tables.session_events import SessionEvent
from common.sentence import Sentence, sentence_of

RESIZED = Sentence("{count} containers, before {before}", count=2, before=1)
"""What the database writes of an elastic session that has become another number of containers."""
MOST = 1000
"""So many of the last events of a session are shown at most."""


async def newest(db: AsyncSession, session_id: UUID, limit: int) -> list[SessionEventView]:
    """Return the last events of a session, the newest first."""
    query = select(SessionEvent).where(SessionEvent.session_id == session_id)
    rows = await db.scalars(query.order_by(SessionEvent.number.desc()).limit(limit))
    return [_view(row) for row in rows]


def _view(row: SessionEvent) -> SessionEventView:
    view = SessionEventView.model_validate(row)
    return view.model_copy(update={"reason": sentence_of(row.reason, row.reason_parts)})
