"""Tables of logins."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, String, text
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base


class Login(Base):
    """A browser that a user signed in with. Of its cookie only the fingerprint is kept.

    `address` and `agent` (the browser as it calls itself) tell a user's logins apart. `used_at` is at most a minute old
    while the browser calls.
    """

    __tablename__ = "logins"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime] = mapped_column(index=True)
    used_at: Mapped[datetime | None] = mapped_column(default=now)
    address: Mapped[str] = mapped_column(String(64), default="", server_default=text("''"))
    agent: Mapped[str] = mapped_column(String(256), default="", server_default=text("''"))


class LoginTries(Base):
    """How often in a row a login was tried in vain, by `subject`: a name, an address, or a name at an address.

    `succeeded_at` is set for a name at an address only, when the right password came from there.
    """

    __tablename__ = "login_tries"

    subject: Mapped[str] = mapped_column(String(160), primary_key=True)
    failures: Mapped[int] = mapped_column(default=0)
    tried_at: Mapped[datetime] = mapped_column(index=True)
    succeeded_at: Mapped[datetime | None]


class AppLogin(Base):
    """A browser's way from the console to an app with a name of its own, and its login there.

    It begins as a `ticket` that counts once, until `expires_at`, in the browser that was given `state` alone; then it
    is a login by `fingerprint`, as long as the one at the console, or until `expires_at` once the browser has another
    one. Of all three only fingerprints are kept.
    """

    __tablename__ = "app_logins"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    login_id: Mapped[UUID] = mapped_column(ForeignKey("logins.id", ondelete="CASCADE"), index=True)
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), index=True)
    port: Mapped[int]
    ticket: Mapped[str | None] = mapped_column(String(64), unique=True)
    state: Mapped[str | None] = mapped_column(String(64))
    expires_at: Mapped[datetime | None] = mapped_column(index=True)
    fingerprint: Mapped[str | None] = mapped_column(String(64), unique=True)
