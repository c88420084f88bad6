"""Columns of what the controller is ordered to do, the same for repairs and for backups."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now


class ControllerOrder:
    """An order, as the controller told of it last. `record` has what it told, `NOUN` is what errors call it, and
    `NOT_BEGUN` the state of one that the controller never began.
    """

    NOUN: ClassVar[str]
    NOT_BEGUN: ClassVar[str]

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_name: Mapped[str] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
    status: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text, default="")
    finished_at: Mapped[datetime | None]
    record: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)
