"""Queries of API keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete as delete_rows
from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.api_keys import ApiKey
from api.tables.users import User


def add(db: AsyncSession, key: ApiKey) -> None:
    """Add a key to the transaction."""
    db.add(key)


async def of_user(db: AsyncSession, user_id: UUID) -> Sequence[ApiKey]:
    """Return the keys of a user, oldest first."""
    return (await db.scalars(select(ApiKey).where(ApiKey.user_id == user_id).order_by(ApiKey.created_at))).all()


async def count_for_new(db: AsyncSession, user_id: UUID, at: datetime) -> int:
    """Return how many keys of a user hold at a moment; nobody else gives the user one until the transaction ends."""
    await db.execute(select(User.id).where(User.id == user_id).with_for_update())
    holds = or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > at)
    query = select(func.count()).select_from(ApiKey).where(ApiKey.user_id == user_id, holds)
    return (await db.scalar(query)) or 0


async def delete(db: AsyncSession, key: ApiKey) -> None:
    """Delete a key."""
    await db.delete(key)


async def delete_of_user(db: AsyncSession, user_id: UUID) -> None:
    """Delete all keys of a user."""
    await db.execute(delete_rows(ApiKey).where(ApiKey.user_id == user_id))


async def delete_ended(db: AsyncSession, before: datetime) -> int:
    """Delete the keys that ended before a moment; returns how many."""
    return len((await db.scalars(delete_rows(ApiKey).where(ApiKey.expires_at < before).returning(ApiKey.id))).all())
