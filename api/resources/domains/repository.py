"""Queries of domains."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.domains import Domain
from api.tables.groups import ResourceGroup
from api.tables.projects import Project
from api.tables.user_policies import UserPolicy
from api.tables.users import User


async def by_name(db: AsyncSession, name: str) -> Domain | None:
    """Return the domain of that name."""
    return await db.get(Domain, name)


async def every(db: AsyncSession, name: str | None) -> Sequence[Domain]:
    """Return all domains by name, or only one."""
    query = select(Domain).order_by(Domain.name)
    return (await db.scalars(query if name is None else query.where(Domain.name == name))).all()


async def contents(db: AsyncSession, name: str) -> dict[str, int]:
    """Return how many users, projects and resource groups belong to a domain."""
    columns = {"users": User.domain, "projects": Project.domain, "resource groups": ResourceGroup.domain}
    query = select(*(select(func.count()).where(column == name).scalar_subquery() for column in columns.values()))
    return dict(zip(columns, (await db.execute(query)).one(), strict=True))


async def is_policy(db: AsyncSession, name: str) -> bool:
    """Return whether there is a user policy of that name."""
    return await db.get(UserPolicy, name) is not None


def add(db: AsyncSession, domain: Domain) -> None:
    """Add a domain to the transaction."""
    db.add(domain)


async def delete(db: AsyncSession, domain: Domain) -> None:
    """Delete a domain."""
    await db.delete(domain)
