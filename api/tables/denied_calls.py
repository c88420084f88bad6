"""Tables of denied calls."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base


class DeniedSeries(Base):
    """A series of one denied system call, by processes of one name in one container of a session.

    `count` of them came from `first_at` to `last_at`; `pid` is that of the last process, as the container numbers them.
    """

    __tablename__ = "denied_calls"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    call: Mapped[str] = mapped_column(String(40), primary_key=True)
    process: Mapped[str] = mapped_column(String(64), primary_key=True)
    effect: Mapped[str] = mapped_column(String(24), primary_key=True)
    first_at: Mapped[datetime] = mapped_column(primary_key=True)
    last_at: Mapped[datetime] = mapped_column(index=True)
    pid: Mapped[int]
    count: Mapped[int] = mapped_column(BigInteger)
