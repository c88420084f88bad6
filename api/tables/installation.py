"""The table of what tells this installation from every other; a backup that comes back is the same one."""

from __future__ import annotations

from uuid import UUID, uuid4

from sqlalchemy import CheckConstraint, true
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base


class Installation(Base):
    """The one row: an id that nobody else has."""

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("is_own", name="one"),)

    is_own: Mapped[bool] = mapped_column(primary_key=True, default=True, server_default=true())
    id: Mapped[UUID] = mapped_column(default=uuid4)
