"""Tables of users."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid4

from sqlalchemy import Enum, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from api.auth.policy import UserRole
from api.clock import now
from api.tables.base import Base


class UserSource(StrEnum):
    """Who knows a user's password: this site, or its directory (LDAP)."""

    LOCAL = "local"
    LDAP = "ldap"


class Language(StrEnum):
    """The languages in which the console speaks."""

    ENGLISH = "en"
    KOREAN = "ko"
    JAPANESE = "ja"
    CHINESE = "zh"
    THAI = "th"


class User(Base):
    """A person. The password is kept as its argon2 hash; whom the directory knows has none here.

    `directory_id` is the id of the entry of the directory that an account belongs to, None while that is open. The role
    is what the directory's groups make it, or what an administrator says: `role_source`.

    `domain` is the company that the user belongs to, None for the site's own people. `policy` limits what the user's
    sessions hold together; without one the domain's does. A `disabled` user can neither sign in nor use keys. One who
    `must_change_password` can do nothing else before. The console speaks the `language`, else that of the browser.
    """

    __tablename__ = "users"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20), unique=True)
    role: Mapped[UserRole] = mapped_column(
        Enum(UserRole, native_enum=False, length=16, values_callable=lambda roles: [role.value for role in roles])
    )
    source: Mapped[UserSource] = mapped_column(
        Enum(UserSource, native_enum=False, length=16, values_callable=lambda sources: [s.value for s in sources]),
        default=UserSource.LOCAL,
        server_default=UserSource.LOCAL.value,
    )
    directory_id: Mapped[str | None] = mapped_column(String(64), unique=True)
    role_source: Mapped[UserSource] = mapped_column(
        Enum(UserSource, native_enum=False, length=16, values_callable=lambda sources: [s.value for s in sources]),
        default=UserSource.LOCAL,
        server_default=UserSource.LOCAL.value,
    )
    domain: Mapped[str | None] = mapped_column(ForeignKey("domains.name"), index=True)
    policy: Mapped[str | None] = mapped_column(ForeignKey("user_policies.name"), index=True)
    email: Mapped[str | None] = mapped_column(String(254))
    disabled: Mapped[bool] = mapped_column(default=False, server_default="0")
    must_change_password: Mapped[bool] = mapped_column(default=False, server_default="0")
    language: Mapped[Language | None] = mapped_column(
        Enum(Language, native_enum=False, length=8, values_callable=lambda names: [name.value for name in names])
    )
    password_hash: Mapped[str | None] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(default=now)
