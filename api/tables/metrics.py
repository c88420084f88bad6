"""Tables of metrics."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base


class GpuSample(Base):
    """What one container of a session used of one GPU at one moment, until its hour is over and packed.

    `at_s` is whole seconds since 1970, so that plain division puts moments together. `busy_permille`
    is of the GPU's time since the sample before, None where nobody can tell.
    """

    __tablename__ = "gpu_samples"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uuid: Mapped[str] = mapped_column(String(128), primary_key=True)
    at_s: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    memory_mib: Mapped[int] = mapped_column(BigInteger)
    busy_permille: Mapped[int | None]
    processes: Mapped[int]


class GpuHour(Base):
    """What one container of a session used of one GPU in one hour, counted in hours since 1970.

    Each sample is one number (`api/resources/metrics/packing.py`); there is one for each second at most.
    """

    __tablename__ = "gpu_hours"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uuid: Mapped[str] = mapped_column(String(128), primary_key=True)
    hour: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    samples: Mapped[list[int]] = mapped_column(ARRAY(BigInteger))

    # hours are written in their order, so that few pages of an index tell where the old ones are
    __table_args__ = (Index("ix_gpu_hours_hour", hour, postgresql_using="brin"),)
