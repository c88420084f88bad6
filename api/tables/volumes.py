"""Tables of volumes."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, Enum, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from api.clock import now
from api.tables.base import Base
from api.tables.projects import Project


class VolumeState(StrEnum):
    """Where a volume stands: its project's, kept after its project went, or on its way out with its files."""

    READY = "ready"
    RETAINED = "retained"
    DELETING = "deleting"


_state = Enum(
    VolumeState, native_enum=False, length=16, values_callable=lambda states: [state.value for state in states]
)
_ready = text("state = 'ready'")
_deleting = text("state = 'deleting'")


class Volume(Base):
    """Storage of a project: a folder of a storage, which sessions of the project mount by the volume's name.

    `folder` is below the root of the storage, and nobody else's: the id, or for what was there before volumes had rows
    `PROJECT/NAME`. `former_project` is the last project of one that has none; `domain` is the project's, or was.
    `used_mib` and `limit_mib` are what the storage tells of its size, `reason` why a deletion does not come to its end.
    """

    __tablename__ = "volumes"
    __table_args__ = (
        UniqueConstraint("storage", "folder"),
        Index("uq_volumes_name", "project_id", "storage", "name", unique=True, postgresql_where=_ready),
        Index("ix_volumes_deleting", "id", postgresql_where=_deleting),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20))
    project_id: Mapped[UUID | None] = mapped_column(ForeignKey("projects.id", ondelete="SET NULL"), index=True)
    former_project: Mapped[str] = mapped_column(String(20), default="")
    domain: Mapped[str | None] = mapped_column(ForeignKey("domains.name", ondelete="SET NULL"), index=True)
    storage: Mapped[str] = mapped_column(String(63))
    folder: Mapped[str] = mapped_column(String(64))
    state: Mapped[VolumeState] = mapped_column(_state, default=VolumeState.READY)
    reason: Mapped[str] = mapped_column(Text, default="")
    used_mib: Mapped[int | None] = mapped_column(BigInteger)
    limit_mib: Mapped[int | None] = mapped_column(BigInteger)
    measured_at: Mapped[datetime | None]
    created_by: Mapped[str] = mapped_column(String(20), default="")
    created_at: Mapped[datetime] = mapped_column(default=now)

    project: Mapped[Project | None] = relationship(lazy="joined")


class SessionVolume(Base):
    """That a session mounts a volume."""

    __tablename__ = "session_volumes"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    volume_id: Mapped[UUID] = mapped_column(ForeignKey("volumes.id", ondelete="CASCADE"), primary_key=True, index=True)
