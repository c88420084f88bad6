"""Whether a page of sessions is as it was, without making it.

PostgreSQL keeps with each row the number of the transaction that wrote it last. These numbers rise, so their sum over
the rows of a page, with how many they are, is another one after every change. SQLite has no such numbers.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.metadata import version
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Select, Text, cast, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import Base
from api.nodes.models import Gpu
from api.sessions.models import Container, Grant, Service, Session


async def of_page(db: AsyncSession, ids: Select[tuple[UUID]], *asked: object) -> str | None:
    """Return the mark of the sessions that `ids` selects, seen by who `asked` for what; None without PostgreSQL."""
    if db.get_bind().dialect.name != "postgresql":
        return None
    page = ids.cte("page")
    within = select(page.c.id)
    nodes = select(Container.node_id).where(Container.session_id.in_(within))
    parts = (
        _written(Session, Session.id.in_(within)),
        _written(Container, Container.session_id.in_(within)),
        _written(Grant, Grant.session_id.in_(within)),
        _written(Service, Service.session_id.in_(within)),
        _written(Gpu, Gpu.node_id.in_(nodes)),
    )
    found = (await db.execute(select(*parts))).one()
    return sha256(repr((version("penstock"), *map(str, found), *asked)).encode()).hexdigest()[:32]


def _written(table: type[Base], condition: ColumnElement[bool]) -> Any:
    number = cast(cast(literal_column(f"{table.__tablename__}.xmin"), Text), BigInteger)
    both = func.concat(func.count(), " ", func.sum(number))
    return select(both).select_from(table).where(condition).scalar_subquery()
