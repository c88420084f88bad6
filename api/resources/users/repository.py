"""Queries of users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import and_, false, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Reach
from api.auth.policy import UserRole
from api.tables.domains import Domain
from api.tables.user_policies import UserPolicy
from api.tables.users import User

_ADMINS = and_(User.role == UserRole.ADMIN, User.domain.is_(None), User.disabled.is_(False))
"""Who can administer the site, if able to sign in."""


async def by_name(db: AsyncSession, name: str, *, lock: bool = False) -> User | None:
    """Return the user of that name; `lock` keeps sessions of this user out until the transaction ends."""
    if not lock:
        return (await db.scalars(select(User).where(User.name == name))).one_or_none()
    # With the administrators, in one order: two who delete each other lock both, and would wait for one another.
    query = select(User).where(or_(User.name == name, _ADMINS)).order_by(User.id).with_for_update()
    locked = (await db.scalars(query.execution_options(populate_existing=True))).all()
    return next((user for user in locked if user.name == name), None)


async def by_names(db: AsyncSession, names: Iterable[str]) -> Sequence[User]:
    """Return the users of those names that exist."""
    return (await db.scalars(select(User).where(User.name.in_(list(names))).order_by(User.name))).all()


async def within(db: AsyncSession, reach: Reach) -> Sequence[User]:
    """Return the users within reach by name."""
    query = select(User).order_by(User.name)
    if not reach.everything:
        query = query.where(User.domain == reach.domain) if reach.domain else query.where(false())
    return (await db.scalars(query)).all()


async def lock_admins(db: AsyncSession) -> set[UUID]:
    """Return the ids of the site's administrators who can sign in; nobody else changes them in the meantime."""
    return set(await db.scalars(select(User.id).where(_ADMINS).order_by(User.id).with_for_update()))


async def is_domain(db: AsyncSession, name: str) -> bool:
    """Return whether there is a domain of that name."""
    return await db.get(Domain, name) is not None


async def is_policy(db: AsyncSession, name: str) -> bool:
    """Return whether there is a user policy of that name."""
    return await db.get(UserPolicy, name) is not None


def add(db: AsyncSession, user: User) -> None:
    """Add a user to the transaction."""
    db.add(user)


async def delete(db: AsyncSession, user: User) -> None:
    """Delete a user with keys, logins and memberships."""
    await db.delete(user)
