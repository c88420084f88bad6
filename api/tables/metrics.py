"""Tables of metrics."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base


class GpuSample(Base):
    """What one container of a session used of one GPU at one moment.

    `at_s` is whole seconds since 1970, so that plain division puts moments together. `busy_permille`
    is of the GPU's time since the sample before, None where nobody can tell.
    """

    __tablename__ = "gpu_samples"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uuid: Mapped[str] = mapped_column(String(128), primary_key=True)
    at_s: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, index=True)
    memory_mib: Mapped[int] = mapped_column(BigInteger)
    busy_permille: Mapped[int | None]
    processes: Mapped[int]
