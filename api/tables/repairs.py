"""Tables of repairs."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base


class RepairRun(Base):
    """A run of a repair, ordered here or on the controller, as the controller told it last.

    `node` is the only one that it may go to, None means all; with `agreed` it may end sessions. `record` has its steps.
    """

    __tablename__ = "repair_runs"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(16))
    node: Mapped[str | None] = mapped_column(String(255))
    dry_run: Mapped[bool] = mapped_column(default=False)
    agreed: Mapped[bool] = mapped_column(default=False)
    user_name: Mapped[str] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
    status: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text, default="")
    finished_at: Mapped[datetime | None]
    record: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)
