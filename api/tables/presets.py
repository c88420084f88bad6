"""Tables of presets."""

from __future__ import annotations

from sqlalchemy import BigInteger, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base
from common.protocol import DEFAULT_SHM_MIB


class Preset(Base):
    """Amounts that sessions may name instead of writing them out; for one container, in the units of a session.

    `enforcement` is the kind that has to hold its GPU share, or a stronger one.
    """

    __tablename__ = "presets"

    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    description: Mapped[str] = mapped_column(Text, default="")
    cpu_milli: Mapped[int] = mapped_column(default=0)
    memory_mib: Mapped[int] = mapped_column(BigInteger, default=0)
    shm_mib: Mapped[int] = mapped_column(BigInteger, default=DEFAULT_SHM_MIB)
    gpu_milli: Mapped[int] = mapped_column(default=0)
    enforcement: Mapped[str] = mapped_column(String(16), default="none", server_default="none")
