"""Tables of domains."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base


class Domain(Base):
    """A company or faculty with people, projects and resource groups of its own; these name it by its name.

    The quotas of its projects together stay within `quota_milli` milli-GPU; None is no limit.
    """

    __tablename__ = "domains"

    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    description: Mapped[str] = mapped_column(Text, default="")
    quota_milli: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(default=now)
