"""Tables of users."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid4

from sqlalchemy import Enum, String
from sqlalchemy.orm import Mapped, mapped_column

from api.database import Base, now


class Role(StrEnum):
    """What a user may do: an admin everything, a member what the projects allow."""

    ADMIN = "admin"
    MEMBER = "member"


class User(Base):
    """A person. The password is kept as its argon2 hash."""

    __tablename__ = "users"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20), unique=True)
    role: Mapped[Role] = mapped_column(
        Enum(Role, native_enum=False, length=16, values_callable=lambda roles: [role.value for role in roles])
    )
    password_hash: Mapped[str] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(default=now)
