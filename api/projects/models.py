"""Tables of projects."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import Column, ForeignKey, String, Table, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from api.database import Base, now
from api.users.models import User

memberships = Table(
    "memberships",
    Base.metadata,
    Column("project_id", ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True),
)


class Project(Base):
    """A group of users with a quota of GPUs, in milli-GPU, that its sessions may hold together."""

    __tablename__ = "projects"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20), unique=True)
    description: Mapped[str] = mapped_column(Text, default="")
    quota_milli: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=now)
    members: Mapped[list[User]] = relationship(
        secondary=memberships, order_by=User.name, lazy="selectin", passive_deletes=True
    )
