"""Tables of accounting."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, Double, Identity, Index, Numeric, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base

_open = text("ended_at IS NULL")
_ended = text("ended_at IS NOT NULL")


class Span(Base):
    """A stretch of time in which a session ran and held its share; a session that was requeued has several.

    It outlives session, user, project and domain, hence their names; the ids say to whom it may be shown. `gpu_milli`
    is what all containers held together. A session has at most one span that has not ended. `waited_s` is how long it
    waited for it: since it was submitted, might start, or held something last. None where it only went on, with another
    share or because a lost node came back with it, and where nobody knows. `gpu_models` leads from the models of its
    GPUs, those of MIG devices' parents, to what it held of each, and `cpu_milli` and `memory_mib` are of all containers
    together; None where nobody knows.
    """

    __tablename__ = "spans"
    __table_args__ = (
        Index("uq_spans_open", "session_id", unique=True, postgresql_where=_open),
        Index("ix_spans_started_at", "started_at"),
        Index("ix_spans_ended_at", "ended_at", postgresql_where=_ended),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    session_id: Mapped[UUID] = mapped_column(index=True)
    session_name: Mapped[str] = mapped_column(String(20))
    user_id: Mapped[UUID | None] = mapped_column(index=True)
    user_name: Mapped[str] = mapped_column(String(20))
    project_id: Mapped[UUID] = mapped_column(index=True)
    project_name: Mapped[str] = mapped_column(String(20))
    domain_id: Mapped[UUID | None] = mapped_column(index=True)
    domain: Mapped[str | None] = mapped_column(String(20))
    gpu_milli: Mapped[int] = mapped_column(BigInteger)
    gpu_models: Mapped[dict[str, int] | None] = mapped_column(JSONB(none_as_null=True))
    cpu_milli: Mapped[int | None] = mapped_column(BigInteger)
    memory_mib: Mapped[int | None] = mapped_column(BigInteger)
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    waited_s: Mapped[float | None] = mapped_column(Double)


class AccountingDay(Base):
    """What is left of spans that are not kept any more: what they come to on one day, for one user in one project.

    Those with other `gpu_models` have rows of their own. There may be several rows of a day, which add up. `sessions`
    counts those that began on it.
    """

    __tablename__ = "accounting_days"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    day: Mapped[datetime] = mapped_column(index=True)
    user_id: Mapped[UUID | None]
    user_name: Mapped[str] = mapped_column(String(20))
    project_id: Mapped[UUID]
    project_name: Mapped[str] = mapped_column(String(20))
    domain_id: Mapped[UUID | None]
    domain: Mapped[str | None] = mapped_column(String(20))
    sessions: Mapped[int]
    seconds: Mapped[float] = mapped_column(Double)
    gpu_milli_seconds: Mapped[float] = mapped_column(Double)
    gpu_models: Mapped[dict[str, int] | None] = mapped_column(JSONB(none_as_null=True))
    cpu_milli_seconds: Mapped[Decimal | None] = mapped_column(Numeric)
    memory_mib_seconds: Mapped[Decimal | None] = mapped_column(Numeric)


class BusyHour(Base):
    """How busy a session's GPUs were in one hour, counted in hours since 1970: what outlives the samples of it.

    `samples` are those that tell, of all its containers and GPUs, which are so many `series`; `busy_permille` is their
    sum.
    """

    __tablename__ = "busy_hours"
    __table_args__ = (Index("ix_busy_hours_hour", "hour", postgresql_using="brin"),)

    session_id: Mapped[UUID] = mapped_column(primary_key=True)
    hour: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    series: Mapped[int]
    samples: Mapped[int]
    busy_permille: Mapped[int] = mapped_column(BigInteger)


class SiteHour(Base):
    """The GPUs that the site had at the beginning of an hour, counted in hours since 1970, or soon after it."""

    __tablename__ = "site_hours"

    hour: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    gpu_milli: Mapped[int] = mapped_column(BigInteger)
