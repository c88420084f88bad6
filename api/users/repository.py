"""Queries of users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.policy import Role
from api.users.models import User


async def by_name(db: AsyncSession, name: str) -> User | None:
    """Return the user of that name."""
    return (await db.scalars(select(User).where(User.name == name))).one_or_none()


async def by_names(db: AsyncSession, names: Iterable[str]) -> Sequence[User]:
    """Return the users of those names that exist."""
    return (await db.scalars(select(User).where(User.name.in_(list(names))).order_by(User.name))).all()


async def every(db: AsyncSession) -> Sequence[User]:
    """Return all users by name."""
    return (await db.scalars(select(User).order_by(User.name))).all()


async def count_admins(db: AsyncSession) -> int:
    """Return how many administrators there are."""
    return (await db.scalar(select(func.count()).select_from(User).where(User.role == Role.ADMIN))) or 0


def add(db: AsyncSession, user: User) -> None:
    """Add a user to the transaction."""
    db.add(user)


async def delete(db: AsyncSession, user: User) -> None:
    """Delete a user with keys, logins and memberships."""
    await db.delete(user)
