"""Tables of projects."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, Enum, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from api.clock import now
from api.tables.base import Base
from api.tables.users import User
from api.tables.weights import Weighted


class ProjectRole(StrEnum):
    """What a user is in a project: a manager also decides who else is a member."""

    MANAGER = "manager"
    MEMBER = "member"


class Expiry(StrEnum):
    """What happens to the sessions that run when a project's period ends: they are stopped, or may finish."""

    STOP = "stop"
    FINISH = "finish"


class Access(StrEnum):
    """Who sees a session: its project, or beside its owner only who looks after the project, the domain, the site."""

    PROJECT = "project"
    PRIVATE = "private"


ACCESS = Enum(Access, native_enum=False, length=16, values_callable=lambda values: [value.value for value in values])


class Membership(Base):
    """That a user belongs to a project, and as what."""

    __tablename__ = "memberships"

    project_id: Mapped[UUID] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True)
    role: Mapped[ProjectRole] = mapped_column(
        Enum(ProjectRole, native_enum=False, length=16, values_callable=lambda roles: [role.value for role in roles]),
        default=ProjectRole.MEMBER,
        server_default=ProjectRole.MEMBER.value,
    )

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True)


class Project(Weighted, Base):
    """A group of users with a quota of GPUs, in milli-GPU, for a period.

    Without `over_quota` the quota is a hard cap; with it the project may also use what is spare, in the ratio of the
    projects' `over_quota_weight` (None: their quotas; 0: what nobody with a part wants), up to `limit_milli` in all
    (None: no limit). Of CPU and memory it is the same where it has a quota of these; None: no quota and no limit. The
    period is [`starts_at`, `ends_at`), without end where that is None. `training_group` and `interactive_group` name
    the resource groups that its sessions keep to, by kind. An interactive session is stopped after
    `interactive_limit_s` (0: never), which its owner may put off by `interactive_extension_s` in total. None of its
    sessions is reclaimed before it ran `min_runtime_s` (None: as the site says). `had_milli` is what it had lately
    beyond its quota, as it was counted at `had_at`. Sessions have its `session_access` unless they say another.
    `memberships` has to be asked for when the row is read. With `named_folders` there may be folders for its volumes
    that nothing has looked for yet: it was there before volumes had rows, and their folders were called `PROJECT/NAME`.
    """

    __tablename__ = "projects"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(20), unique=True)
    description: Mapped[str] = mapped_column(Text, default="")
    domain: Mapped[str | None] = mapped_column(ForeignKey("domains.name"), index=True)
    quota_milli: Mapped[int]
    over_quota: Mapped[bool] = mapped_column(default=True, server_default="1")
    limit_milli: Mapped[int | None]
    cpu_quota_milli: Mapped[int | None] = mapped_column(BigInteger)
    cpu_limit_milli: Mapped[int | None] = mapped_column(BigInteger)
    memory_quota_mib: Mapped[int | None] = mapped_column(BigInteger)
    memory_limit_mib: Mapped[int | None] = mapped_column(BigInteger)
    starts_at: Mapped[datetime] = mapped_column(default=now, server_default="2000-01-01 00:00:00+00:00")
    ends_at: Mapped[datetime | None]
    on_expiry: Mapped[Expiry] = mapped_column(
        Enum(Expiry, native_enum=False, length=16, values_callable=lambda values: [value.value for value in values]),
        default=Expiry.STOP,
        server_default=Expiry.STOP.value,
    )
    training_group: Mapped[str | None] = mapped_column(ForeignKey("resource_groups.name"))
    interactive_group: Mapped[str | None] = mapped_column(ForeignKey("resource_groups.name"))
    interactive_limit_s: Mapped[int] = mapped_column(default=0, server_default="0")
    interactive_extension_s: Mapped[int] = mapped_column(default=0, server_default="0")
    min_runtime_s: Mapped[int | None]
    had_milli: Mapped[float] = mapped_column(default=0.0, server_default="0")
    had_at: Mapped[datetime | None]
    session_access: Mapped[Access] = mapped_column(ACCESS, default=Access.PROJECT, server_default=Access.PROJECT.value)
    named_folders: Mapped[bool] = mapped_column(default=False, server_default="0")
    created_at: Mapped[datetime] = mapped_column(default=now)

    memberships: Mapped[list[Membership]] = relationship(
        lazy="raise", cascade="all, delete-orphan", passive_deletes=True
    )

    def names(self, role: ProjectRole) -> list[str]:
        """Return the names of its managers, or of its other members, in order."""
        return sorted(membership.user.name for membership in self.memberships if membership.role is role)
