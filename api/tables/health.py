"""Tables of health: how each check is now, how checks have changed, and who is still to be told of that."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, Enum, ForeignKey, Identity, String, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base
from common.checks import CheckState

_EMPTY = text("''")


class Source(StrEnum):
    """Who looks: the agent of a node, the leader of the API, also at its automatic repairs, or the controller at nodes
    without an agent.
    """

    AGENT = "agent"
    CONTROLLER = "controller"
    LEADER = "leader"
    REPAIRS = "repairs"


def _state() -> Enum:
    return Enum(
        CheckState, native_enum=False, length=16, values_callable=lambda states: [each.value for each in states]
    )


class HealthCheck(Base):
    """A check of a node, or of the site where there is no node; `thing` is what of it the check is about. A node that
    has no agent has no row of its own: `node_name` is its name.

    It has its state `since` then. `occurred_at` is when what it tells of occurred, where its source knows that: what is
    `cleared_at` that moment counts as well until it occurs anew; else until it was well, or is worse. While it is
    acknowledged nobody is told of it.
    """

    __tablename__ = "health_checks"
    __table_args__ = (
        UniqueConstraint("node_id", "node_name", "check_id", "thing", postgresql_nulls_not_distinct=True),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    node_id: Mapped[UUID | None] = mapped_column(ForeignKey("nodes.id", ondelete="CASCADE"))
    node_name: Mapped[str] = mapped_column(String(63), default="", server_default=_EMPTY)
    check_id: Mapped[str] = mapped_column(String(255))
    thing: Mapped[str] = mapped_column(String(255), default="", server_default=_EMPTY)
    source: Mapped[Source] = mapped_column(
        Enum(Source, native_enum=False, length=16, values_callable=lambda sources: [each.value for each in sources])
    )
    name: Mapped[str] = mapped_column(Text)
    state: Mapped[CheckState] = mapped_column(_state())
    evidence: Mapped[str] = mapped_column(Text, default="", server_default=_EMPTY)
    hint: Mapped[str] = mapped_column(Text, default="", server_default=_EMPTY)
    repair: Mapped[str] = mapped_column(String(255), default="", server_default=_EMPTY)
    since: Mapped[datetime]
    occurred_at: Mapped[datetime | None]
    cleared_at: Mapped[datetime | None]
    acknowledged_until: Mapped[datetime | None]
    acknowledged_by: Mapped[str] = mapped_column(String(64), default="", server_default=_EMPTY)
    comment: Mapped[str] = mapped_column(Text, default="", server_default=_EMPTY)


class HealthChange(Base):
    """A check that came to another state; `before` is None for one that is new. It outlives its node."""

    __tablename__ = "health_changes"

    number: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now, index=True)
    node: Mapped[str] = mapped_column(String(63), index=True)
    check_id: Mapped[str] = mapped_column(String(255))
    thing: Mapped[str] = mapped_column(String(255))
    before: Mapped[CheckState | None] = mapped_column(_state())
    after: Mapped[CheckState] = mapped_column(_state())
    evidence: Mapped[str] = mapped_column(Text)


class HealthAlert(Base):
    """What somebody is still to be told of, by a `channel`; it goes when it is told, or was tried for long enough."""

    __tablename__ = "health_alerts"

    number: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now)
    channel: Mapped[str] = mapped_column(String(16))
    told: Mapped[dict[str, Any]] = mapped_column(JSONB)
    tries: Mapped[int] = mapped_column(default=0, server_default="0")
    due_at: Mapped[datetime] = mapped_column(default=now, index=True)
