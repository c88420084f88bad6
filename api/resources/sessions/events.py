"""Events of sessions: what became of one so far."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.sessions.views import SessionEventView
from api.tables.session_events import SessionEvent

MOST = 1000
"""So many of the last events of a session are shown at most."""


async def newest(db: AsyncSession, session_id: UUID, limit: int) -> list[SessionEventView]:
    """Return the last events of a session, the newest first."""
    query = select(SessionEvent).where(SessionEvent.session_id == session_id)
    rows = await db.scalars(query.order_by(SessionEvent.number.desc()).limit(limit))
    return [SessionEventView.model_validate(row) for row in rows]
