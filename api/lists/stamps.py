"""Stamps: whether what a page shows may have changed, told by one query that reads nothing of it."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.lists.texts import said, server
from api.tables.base import Base
from api.tables.domains import Domain
from api.tables.projects import Membership, Project
from api.tables.sessions import LISTED, Session
from api.tables.user_policies import UserPolicy
from api.tables.users import User
from api.tables.written import written

PEOPLE: tuple[type[Base], ...] = (User, Membership, Project, Domain, UserPolicy)
"""What says who sees what, and how much anybody may have."""
MINUTE_S = 60
"""Pages tell how long ago something was, to the minute."""


async def stamp(db: AsyncSession, tables: Iterable[type[Base] | Table], *more: object) -> str:
    """Return a text that is another one whenever rows of tables are, or `more`, or a minute is over.

    Of sessions those count that a list has unless all are asked for.
    """
    parts = []
    for table in tables:
        query = select(said(*written(table))).select_from(table)
        parts.append((query.where(LISTED) if table is Session else query).scalar_subquery())
    found = await db.scalar(select(said(server(), *parts)))
    minute = int(now().timestamp()) // MINUTE_S
    return sha256(repr((found, minute, more)).encode()).hexdigest()[:16]
