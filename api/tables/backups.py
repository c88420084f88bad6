"""Tables of backups: which there are, as the controller told it last, and what was ordered about them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base


class Backup(Base):
    """A backup that the controller has; `record` is what it told of it, `position` its place, 0 is the newest."""

    __tablename__ = "backups"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    position: Mapped[int]
    record: Mapped[dict[str, Any]] = mapped_column(JSONB)


class BackupOrder(Base):
    """An order about a backup: the one that is named, or after its end the one that it was about."""

    __tablename__ = "backup_orders"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    action: Mapped[str] = mapped_column(String(16))
    backup: Mapped[str | None] = mapped_column(String(64))
    user_name: Mapped[str] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
    status: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text, default="")
    finished_at: Mapped[datetime | None]
    record: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)
