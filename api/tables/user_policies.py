"""Tables of user policies."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base


class UserPolicy(Base):
    """The most that the live sessions of a user may be and ask for together; None is no limit.

    GPUs are in milli-GPU, `max_cpu_milli` in thousandths of a core, memory in MiB.
    """

    __tablename__ = "user_policies"

    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    description: Mapped[str] = mapped_column(Text, default="")
    max_sessions: Mapped[int | None]
    max_gpu_milli: Mapped[int | None] = mapped_column(BigInteger)
    max_cpu_milli: Mapped[int | None] = mapped_column(BigInteger)
    max_memory_mib: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=now)
