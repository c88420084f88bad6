"""Queries of users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import and_, exists, false, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Reach
from api.auth.policy import UserRole
from api.tables.api_keys import ApiKey
from api.tables.domains import Domain
from api.tables.logins import Login
from api.tables.sessions import BEFORE_START, Session
from api.tables.user_policies import UserPolicy
from api.tables.users import User, UserSource

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


async def by_directory_id(db: AsyncSession, directory_id: str) -> User | None:
    """Return the user to whom an entry of the directory belongs."""
    return (await db.scalars(select(User).where(User.directory_id == directory_id))).one_or_none()


async def of_directory(db: AsyncSession, name: str | None = None, directory_id: str | None = None) -> Sequence[User]:
    """Return the users whom the directory knows and who have keys, logins, or sessions that do not run yet.

    Only those of a name or an entry, where one is given.
    """
    waits = exists().where(Session.user_id == User.id, Session.state.in_(BEFORE_START))
    lets_in = [exists().where(table.user_id == User.id) for table in (ApiKey, Login)]
    query = select(User).where(User.source == UserSource.LDAP, or_(waits, *lets_in)).order_by(User.name)
    if name is not None:
        query = query.where(or_(User.name == name, User.directory_id == directory_id))
    return (await db.scalars(query)).all()


async def of_entry(db: AsyncSession, user_id: UUID, directory_id: str | None) -> User | None:
    """Return a user to whom an entry, or none, belongs still; nobody else changes that until the transaction ends."""
    query = select(User).where(User.id == user_id, User.directory_id.is_not_distinct_from(directory_id))
    return (await db.scalars(query.with_for_update())).one_or_none()


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
