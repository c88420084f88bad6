"""Tables of API keys."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import Enum, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from api.auth.policy import KeyScope
from api.clock import now
from api.tables.base import Base


class ApiKey(Base):
    """A key of a user. Only its fingerprint is kept, and its first characters so that people can tell keys apart.

    `scope` is what it is good for. It goes with the key that it was `made_by`, which is None after a login.
    `used_at` is at most a minute old while the key is used. Without `expires_at` it holds until it is revoked.
    """

    __tablename__ = "api_keys"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(64))
    prefix: Mapped[str] = mapped_column(String(16))
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    scope: Mapped[KeyScope] = mapped_column(
        Enum(KeyScope, native_enum=False, length=16, values_callable=lambda scopes: [scope.value for scope in scopes]),
        default=KeyScope.ALL,
        server_default=KeyScope.ALL.value,
    )
    made_by: Mapped[UUID | None] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
