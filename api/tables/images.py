"""Tables of images."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, Column, Enum, ForeignKey, Index, String, Table, Text, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from api.clock import now
from api.tables.base import Base
from api.tables.projects import Project


class Visibility(StrEnum):
    """Who may use an image: every project, or those that it was registered for."""

    GLOBAL = "global"
    PROJECTS = "projects"


class Status(StrEnum):
    """Whether an image is known to be there: a node tries to pull it."""

    UNCHECKED = "unchecked"
    PULLING = "pulling"
    READY = "ready"
    FAILED = "failed"


UNSETTLED = (Status.UNCHECKED, Status.PULLING)

image_projects = Table(
    "image_projects",
    Base.metadata,
    Column("image_id", ForeignKey("images.id", ondelete="CASCADE"), primary_key=True),
    Column("project_id", ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True, index=True),
)

_global = text("visibility = 'global'")


class Image(Base):
    """An image that sessions may name; `reference` is what the container engine pulls.

    `digest` is its id at the container engine of the node that pulled it, `size` in bytes; `error` says why the pull
    failed. It came to its status at `since`. Projects have images of their own beside the global ones, and of the same
    names.
    """

    __tablename__ = "images"
    __table_args__ = (
        Index("uq_images_global_title", "name", "tag", unique=True, postgresql_where=_global),
        Index("ix_images_name_tag", "name", "tag"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(128))
    tag: Mapped[str] = mapped_column(String(128))
    reference: Mapped[str] = mapped_column(String(512))
    description: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    visibility: Mapped[Visibility] = mapped_column(
        Enum(Visibility, native_enum=False, length=16, values_callable=lambda those: [each.value for each in those]),
        default=Visibility.GLOBAL,
        server_default=Visibility.GLOBAL.value,
    )
    status: Mapped[Status] = mapped_column(
        Enum(Status, native_enum=False, length=16, values_callable=lambda values: [value.value for value in values]),
        default=Status.UNCHECKED,
        server_default=Status.UNCHECKED.value,
        index=True,
    )
    since: Mapped[datetime] = mapped_column(default=now, server_default="2000-01-01 00:00:00+00:00")
    error: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    digest: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    size: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"), index=True)
    user_name: Mapped[str] = mapped_column(String(20), default="", server_default=text("''"))
    created_at: Mapped[datetime] = mapped_column(default=now)

    projects: Mapped[list[Project]] = relationship(
        secondary=image_projects, order_by=Project.name, lazy="selectin", passive_deletes=True
    )

    @property
    def title(self) -> str:
        """What people call it: `name:tag`."""
        return f"{self.name}:{self.tag}"
