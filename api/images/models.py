"""Tables of images."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.database import Base, now


class Image(Base):
    """An image that sessions may name; `reference` is what the container engine pulls."""

    __tablename__ = "images"
    __table_args__ = (UniqueConstraint("name", "tag"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(128))
    tag: Mapped[str] = mapped_column(String(128))
    reference: Mapped[str] = mapped_column(String(512))
    created_at: Mapped[datetime] = mapped_column(default=now)

    @property
    def title(self) -> str:
        """What people call it: `name:tag`."""
        return f"{self.name}:{self.tag}"
