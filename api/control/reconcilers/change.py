"""A change of a session that one reconciler wants, to be written by one transaction for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.sessions import service as sessions
from api.tables.sessions import ENDED, Session

log = structlog.get_logger()


@dataclass(frozen=True)
class SessionUpdate:
    """The new values of a session as it was read."""

    session: Session
    values: dict[str, Any]


async def apply(db: AsyncSession, update: SessionUpdate) -> bool:
    """Write an update; returns False where somebody else has changed the session since it was read."""
    session, values = update.session, update.values
    act = sessions.end if values.get("state") in ENDED else sessions.change
    if not await act(db, session, **values):
        return False
    log_change(session, values)
    return True


def log_change(session: Session, values: dict[str, Any]) -> None:
    """Say what became of a session."""
    told = {name: str(values[name]) for name in ("state", "final_state", "reason", "exit_code") if name in values}
    log.info("session", session=session.name, session_id=str(session.id), project=session.project.name, **told)
