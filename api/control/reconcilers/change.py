"""A change of a session that one reconciler wants, to be written by one transaction for all."""

from __future__ import annotations

from collections.abc import Sequence
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


async def write(db: AsyncSession, updates: Sequence[SessionUpdate]) -> None:
    """Write updates; a session that somebody else has changed since it was read is left for the next time."""
    for update in updates:
        session, values = update.session, update.values
        act = sessions.end if values.get("state") in ENDED else sessions.change
        if await act(db, session, **values):
            log_change(session, values)


def log_change(session: Session, values: dict[str, Any]) -> None:
    """Say what became of a session."""
    told = {name: str(values[name]) for name in ("state", "final_state", "reason", "exit_code") if name in values}
    log.info("session", session=session.name, project=session.project.name, **told)
