"""Tables of sessions."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, Enum, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from api.database import Base, now
from api.nodes.models import Node
from api.projects.models import Project


class State(StrEnum):
    """Where a session stands."""

    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"


ENDED = (State.TERMINATED, State.FAILED)
HOLDING = (State.SCHEDULED, State.PREPARING, State.RUNNING, State.TERMINATING)
"""States in which a session holds its GPUs; TERMINATING too, for its container may still run."""

_state = Enum(State, native_enum=False, length=16)
_live = text("state NOT IN ('TERMINATED', 'FAILED')")


class Session(Base):
    """A container with a GPU share.

    `revision` is the row's lock token: whoever changes the row names the revision it has read. `ending` is the state
    that a TERMINATING session comes to when its container is gone.
    """

    __tablename__ = "sessions"
    __table_args__ = (
        Index("uq_sessions_live_name", "project_id", "name", unique=True, sqlite_where=_live, postgresql_where=_live),
        Index("ix_sessions_state_created_at", "state", "created_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20))
    project_id: Mapped[UUID] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"))
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"), index=True)
    user_name: Mapped[str] = mapped_column(String(20))
    image: Mapped[str] = mapped_column(String(257))
    reference: Mapped[str] = mapped_column(String(512))
    interactive: Mapped[bool]
    gpu_milli: Mapped[int]
    command: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    args: Mapped[list[str]] = mapped_column(JSON)
    environment: Mapped[dict[str, str]] = mapped_column(JSON)
    mounts: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    state: Mapped[State] = mapped_column(_state, default=State.PENDING)
    reason: Mapped[str] = mapped_column(Text, default="")
    ending: Mapped[State | None] = mapped_column(_state)
    revision: Mapped[int] = mapped_column(default=0)
    node_id: Mapped[UUID | None] = mapped_column(ForeignKey("nodes.id"), index=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    scheduled_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    exit_code: Mapped[int | None]

    project: Mapped[Project] = relationship(lazy="joined", innerjoin=True)
    node: Mapped[Node | None] = relationship(lazy="joined")
    grants: Mapped[list[Grant]] = relationship(
        order_by="Grant.index", lazy="selectin", cascade="all, delete-orphan", passive_deletes=True
    )

    @property
    def container_id(self) -> str:
        """The name of the session's container, made by us so that a repeated launch is the same one."""
        return f"session-{self.id}"


class Grant(Base):
    """The part of one GPU that a session holds."""

    __tablename__ = "grants"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uuid: Mapped[str] = mapped_column(String(128))
    milli: Mapped[int]


class SessionLog(Base):
    """The last part of an ended session's log; it outlives the container."""

    __tablename__ = "session_logs"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    tail: Mapped[bytes]
