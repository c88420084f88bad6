"""Tables of resource groups."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import Column, ForeignKey, String, Table, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from api.clock import now
from api.tables.base import Base
from api.tables.nodes import Node
from api.tables.projects import Project
from api.tables.users import User


def _members(of: str) -> Table:
    """Return the table that says which nodes, users or projects belong to a group."""
    return Table(
        f"resource_group_{of}s",
        Base.metadata,
        Column("group_id", ForeignKey("resource_groups.id", ondelete="CASCADE"), primary_key=True),
        Column(f"{of}_id", ForeignKey(f"{of}s.id", ondelete="CASCADE"), primary_key=True, index=True),
    )


group_nodes, group_users, group_projects = _members("node"), _members("user"), _members("project")


class ResourceGroup(Base):
    """Nodes that belong together, and who may use them.

    The nodes are those named, and every one that has all of what is selected by: all its GPUs of `gpu_model`, its
    `switch`, its `region`; empty ones select nothing. An `open` group is for everybody, another one for its users and
    the members of its projects; one of a `domain` is for users of that domain only.
    """

    __tablename__ = "resource_groups"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20), unique=True)
    description: Mapped[str] = mapped_column(Text, default="")
    purpose: Mapped[str] = mapped_column(Text, default="")
    domain: Mapped[str | None] = mapped_column(ForeignKey("domains.name"), index=True)
    gpu_model: Mapped[str] = mapped_column(Text, default="")
    switch: Mapped[str] = mapped_column(Text, default="")
    region: Mapped[str] = mapped_column(Text, default="")
    open: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=now)

    nodes: Mapped[list[Node]] = relationship(secondary=group_nodes, lazy="raise", passive_deletes=True)
    users: Mapped[list[User]] = relationship(secondary=group_users, lazy="raise", passive_deletes=True)
    projects: Mapped[list[Project]] = relationship(secondary=group_projects, lazy="raise", passive_deletes=True)
