"""Queries of API keys."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import delete as delete_rows
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.api_keys import ApiKey


def add(db: AsyncSession, key: ApiKey) -> None:
    """Add a key to the transaction."""
    db.add(key)


async def of_user(db: AsyncSession, user_id: UUID) -> Sequence[ApiKey]:
    """Return the keys of a user, oldest first."""
    return (await db.scalars(select(ApiKey).where(ApiKey.user_id == user_id).order_by(ApiKey.created_at))).all()


async def delete(db: AsyncSession, key: ApiKey) -> None:
    """Delete a key."""
    await db.delete(key)


async def delete_of_user(db: AsyncSession, user_id: UUID) -> None:
    """Delete all keys of a user."""
    await db.execute(delete_rows(ApiKey).where(ApiKey.user_id == user_id))
