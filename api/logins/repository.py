"""Queries of logins."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.logins.models import Login
from api.users.models import User


def add(db: AsyncSession, login: Login) -> None:
    """Add a login to the transaction."""
    db.add(login)


async def user_of(db: AsyncSession, fingerprint: str, at: datetime) -> User | None:
    """Return who a cookie stands for at a moment."""
    query = select(User).join(Login, Login.user_id == User.id)
    return (await db.scalars(query.where(Login.fingerprint == fingerprint, Login.expires_at > at))).one_or_none()


async def remove(db: AsyncSession, fingerprint: str) -> None:
    """End one login."""
    await db.execute(delete(Login).where(Login.fingerprint == fingerprint))


async def remove_of_user(db: AsyncSession, user_id: UUID) -> None:
    """End all logins of a user."""
    await db.execute(delete(Login).where(Login.user_id == user_id))


async def remove_expired(db: AsyncSession, at: datetime) -> None:
    """Forget the logins that ended before a moment."""
    await db.execute(delete(Login).where(Login.expires_at <= at))
