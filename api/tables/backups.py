"""Tables of backups: which there are, as the controller told it last, and what was ordered about them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base
from api.tables.controller_orders import ControllerOrder
from common.backup_protocol import BackupOrderState


class Backup(Base):
    """A backup that the controller has; `record` is what it told of it, `position` its place, 0 is the newest."""

    __tablename__ = "backups"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    position: Mapped[int]
    record: Mapped[dict[str, Any]] = mapped_column(JSONB)


class BackupOrder(ControllerOrder, Base):
    """An order about a backup: the one that is named, or after its end the one that it was about."""

    __tablename__ = "backup_orders"
    NOUN = "order"
    NOT_BEGUN = BackupOrderState.FAILED

    action: Mapped[str] = mapped_column(String(16))
    backup: Mapped[str | None] = mapped_column(String(64))
