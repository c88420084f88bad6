"""Who an API key or a cookie stands for: one query, for every request asks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.api_keys.models import ApiKey
from api.identity import Identity
from api.logins.models import Login
from api.projects.models import Membership, Part
from api.users.models import User

USED_EVERY = timedelta(minutes=1)
"""How old the note of the last use may be: not every request writes."""

_CALLER = (User.id, User.name, User.role, User.domain, User.must_change_password)


@dataclass(frozen=True)
class Known:
    """A caller as the database knows it. `table` and `row_id` are the key or login used, noted last at `used_at`."""

    identity: Identity
    must_change_password: bool
    table: type[ApiKey] | type[Login]
    row_id: UUID
    used_at: datetime | None

    def is_noted(self, at: datetime) -> bool:
        """Return whether the last use is noted well enough."""
        return self.used_at is not None and at - self.used_at < USED_EVERY


async def by_key(db: AsyncSession, fingerprint: str, at: datetime) -> Known | None:
    """Return who a key stands for at a moment."""
    query = select(*_CALLER, ApiKey.id, ApiKey.used_at).join(ApiKey, ApiKey.user_id == User.id)
    holds = or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > at)
    return await _known(db, query.where(ApiKey.fingerprint == fingerprint, holds), ApiKey)


async def by_cookie(db: AsyncSession, fingerprint: str, at: datetime, idle_s: int) -> Known | None:
    """Return who a login stands for at a moment; not for one that was not used for `idle_s`."""
    query = select(*_CALLER, Login.id, Login.used_at).join(Login, Login.user_id == User.id)
    used = or_(Login.used_at.is_(None), Login.used_at > at - timedelta(seconds=idle_s))
    return await _known(db, query.where(Login.fingerprint == fingerprint, Login.expires_at > at, used), Login)


async def note_use(db: AsyncSession, known: Known, at: datetime) -> None:
    """Note that a key or a login was used, unless another request has just done so."""
    table = known.table
    stale = or_(table.used_at.is_(None), table.used_at <= at - USED_EVERY)
    await db.execute(update(table).where(table.id == known.row_id, stale).values(used_at=at))


async def _known(db: AsyncSession, query: Select[*tuple[Any, ...]], table: type[ApiKey] | type[Login]) -> Known | None:
    """Run a query of a user and what stands for it; the user's projects come with it, a row each."""
    query = query.add_columns(Membership.project_id, Membership.part)
    query = query.outerjoin(Membership, Membership.user_id == User.id)
    rows = (await db.execute(query.where(User.disabled.is_(False)))).all()
    return _read(rows, table) if rows else None


def _read(rows: Sequence[Row[*tuple[Any, ...]]], table: type[ApiKey] | type[Login]) -> Known:
    user_id, name, role, domain, must_change, row_id, used_at, *_ = rows[0]
    projects = {project_id: part for *_, project_id, part in rows if project_id is not None}
    identity = Identity(
        user_id,
        name,
        role,
        domain,
        manages=frozenset(project_id for project_id, part in projects.items() if part is Part.MANAGER),
        member_of=frozenset(projects),
    )
    return Known(identity, must_change, table, row_id, used_at)
