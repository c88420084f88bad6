"""Queries of API keys."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.api_keys.models import ApiKey
from api.users.models import User


def add(db: AsyncSession, key: ApiKey) -> None:
    """Add a key to the transaction."""
    db.add(key)


async def of_user(db: AsyncSession, user_id: UUID) -> Sequence[ApiKey]:
    """Return the keys of a user, oldest first."""
    return (await db.scalars(select(ApiKey).where(ApiKey.user_id == user_id).order_by(ApiKey.created_at))).all()


async def user_of(db: AsyncSession, fingerprint: str) -> User | None:
    """Return who a key stands for."""
    query = select(User).join(ApiKey, ApiKey.user_id == User.id)
    return (await db.scalars(query.where(ApiKey.fingerprint == fingerprint))).one_or_none()


async def delete(db: AsyncSession, key: ApiKey) -> None:
    """Delete a key."""
    await db.delete(key)
