"""Tables of domains."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base
from api.tables.weights import Weighted


class Domain(Weighted, Base):
    """A company or faculty with people, projects and resource groups of its own; these name it by its name.

    The quotas of its projects together stay within `quota_milli` milli-GPU; None is no limit. Where it `shares`, that
    is guaranteed to them together, they have what is spare by its `over_quota_weight` (None: its quota; 0: what nobody
    with a part wants), and they hold no more than `limit_milli` in all (None: no limit). `policy` limits those of its
    people who have none of their own. The `id` tells it from one of the same name that was deleted before.
    """

    __tablename__ = "domains"

    id: Mapped[UUID] = mapped_column(default=uuid4, unique=True)
    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    description: Mapped[str] = mapped_column(Text, default="")
    quota_milli: Mapped[int | None]
    shares: Mapped[bool] = mapped_column(default=False, server_default="0")
    limit_milli: Mapped[int | None]
    policy: Mapped[str | None] = mapped_column(ForeignKey("user_policies.name"), index=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
