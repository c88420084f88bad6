"""Tables of sandboxes."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, Column, ForeignKey, Index, String, Table, Text, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from api.clock import now
from api.tables.base import Base
from api.tables.images import Image
from api.tables.projects import Project


def _given_to(of: str) -> Table:
    """Return the table that says which projects or images have a sandbox: one at most each."""
    return Table(
        f"sandbox_{of}s",
        Base.metadata,
        Column(f"{of}_id", ForeignKey(f"{of}s.id", ondelete="CASCADE"), primary_key=True),
        Column("sandbox_id", ForeignKey("sandboxes.id", ondelete="CASCADE"), nullable=False, index=True),
    )


sandbox_projects, sandbox_images = _given_to("project"), _given_to("image")

_site_wide = text("site_wide")


class Sandbox(Base):
    """Rules on system calls, in the form of `common.sandbox`, for the sessions of projects and images.

    A `site_wide` one, and there is one at most, is for every session that no other is for.
    """

    __tablename__ = "sandboxes"
    __table_args__ = (Index("uq_sandboxes_site_wide", "site_wide", unique=True, postgresql_where=_site_wide),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20), unique=True)
    description: Mapped[str] = mapped_column(Text, default="")
    rules: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    site_wide: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=now)

    projects: Mapped[list[Project]] = relationship(secondary=sandbox_projects, lazy="selectin", passive_deletes=True)
    images: Mapped[list[Image]] = relationship(secondary=sandbox_images, lazy="selectin", passive_deletes=True)
