"""Table of what became of sessions, which a trigger writes: nothing that changes a state can leave its line out."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, String, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base


class SessionEvent(Base):
    """A session came to a `state` in its attempt, `at` the moment since when it has been in it, with why.

    `reason`, its `reason_parts`, `cause` and `exit_code` are those of that moment; why a session waits may change while
    it does.
    """

    __tablename__ = "session_events"
    __table_args__ = (Index("ix_session_events_session_id_number", "session_id", "number"),)

    number: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"))
    at: Mapped[datetime]
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    reason_parts: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'::jsonb"))
    cause: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int]
    exit_code: Mapped[int | None]
