"""The table of notices: what administrators tell everybody."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid4

from sqlalchemy import Enum, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base


class NoticeLevel(StrEnum):
    """How much a notice matters: it informs, warns of what comes, or tells what does not work now."""

    INFO = "info"
    WARNING = "warning"
    OUTAGE = "outage"


class Notice(Base):
    """What is told from a moment on, up to another one where there is one; `texts` are of languages, by their codes."""

    __tablename__ = "notices"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    level: Mapped[NoticeLevel] = mapped_column(
        Enum(NoticeLevel, native_enum=False, length=16, values_callable=lambda levels: [each.value for each in levels])
    )
    text: Mapped[str] = mapped_column(Text)
    texts: Mapped[dict[str, str]] = mapped_column(JSONB)
    starts_at: Mapped[datetime]
    ends_at: Mapped[datetime | None]
    user_name: Mapped[str] = mapped_column(String(20))
    created_at: Mapped[datetime] = mapped_column(default=now)
