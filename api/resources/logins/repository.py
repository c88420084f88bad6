"""Queries of logins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.logins import Login, LoginTries


def add(db: AsyncSession, login: Login) -> None:
    """Add a login to the transaction."""
    db.add(login)


async def of_user(db: AsyncSession, user_id: UUID, at: datetime) -> Sequence[Login]:
    """Return the logins of a user that have not expired, oldest first."""
    query = select(Login).where(Login.user_id == user_id, Login.expires_at > at)
    return (await db.scalars(query.order_by(Login.created_at, Login.id))).all()


async def remove(db: AsyncSession, user_id: UUID, login_id: UUID) -> bool:
    """End one login of a user; returns whether there was one."""
    query = delete(Login).where(Login.user_id == user_id, Login.id == login_id).returning(Login.id)
    return (await db.scalars(query)).one_or_none() is not None


async def remove_of_user(db: AsyncSession, user_id: UUID, but: UUID | None) -> None:
    """End all logins of a user, but perhaps one."""
    query = delete(Login).where(Login.user_id == user_id)
    await db.execute(query if but is None else query.where(Login.id != but))


async def remove_expired(db: AsyncSession, at: datetime) -> int:
    """Forget the logins that ended before a moment; returns how many."""
    return len((await db.scalars(delete(Login).where(Login.expires_at <= at).returning(Login.id))).all())


async def lock_tries(db: AsyncSession, subjects: Sequence[str], at: datetime) -> dict[str, LoginTries]:
    """Return the tries of subjects, made where there are none; nobody else changes them in the meantime."""
    rows = [{"subject": subject, "failures": 0, "tried_at": at} for subject in subjects]
    await db.execute(insert(LoginTries).values(rows).on_conflict_do_nothing())
    query = select(LoginTries).where(LoginTries.subject.in_(subjects)).order_by(LoginTries.subject).with_for_update()
    return {tries.subject: tries for tries in await db.scalars(query)}


async def forget_tries(db: AsyncSession, failed_before: datetime, succeeded_before: datetime) -> None:
    """Forget the tries that do not matter any more."""
    untrusted = or_(LoginTries.succeeded_at.is_(None), LoginTries.succeeded_at < succeeded_before)
    old = select(LoginTries.subject).where(LoginTries.tried_at < failed_before, untrusted)
    # Rows that another login holds are left to it: two that forget at once must not wait for one another.
    stale = await db.scalars(old.with_for_update(skip_locked=True).limit(1000))
    await db.execute(delete(LoginTries).where(LoginTries.subject.in_(stale.all())))
