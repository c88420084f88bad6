"""Sessions as people look for them: newest first, by words, with how many are in each state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.lists import session_pages
from api.tables.projects import Project
from api.tables.sessions import LISTED, Session, State

_sessions, _projects = Session.__table__.c, Project.__table__.c
_searched = (_sessions.name, _sessions.user_name, _projects.name, _sessions.image)


@dataclass(frozen=True)
class Search:
    """Which sessions are looked for. `text` is part of a name, of the owner's, the project's or the image's.

    `mine` leaves those of others out. Without `states` those that were taken off the lists are left out.
    """

    text: str = ""
    mine: bool = False
    states: Collection[State] = ()


async def page(
    db: AsyncSession, caller: Identity, search: Search, *, limit: int, before: str | None = None
) -> tuple[list[UUID], str | None]:
    """Return sessions that a caller sees, newest first, and the cursor of those before them.

    Raises InputError for what is no cursor.
    """
    order = (_sessions.created_at, _sessions.id)
    query = _found(select(*order), caller, search)
    query = query.where(_sessions.state.in_(search.states)) if search.states else query.where(LISTED)
    if last := session_pages.position(before):
        query = query.where(tuple_(*order) < tuple_(last["created_at"], last["id"]))
    query = query.order_by(*(column.desc() for column in order)).limit(limit + 1)
    rows = (await db.execute(query, session_pages.reached(caller))).all()
    more = session_pages.cursor(*rows[limit - 1]) if len(rows) > limit else None
    return [row.id for row in rows[:limit]], more


async def counts(db: AsyncSession, caller: Identity, search: Search) -> dict[State, int]:
    """Return how many of the sessions that a caller sees are in each state, whatever states are looked for."""
    query = _found(select(_sessions.state, func.count()), caller, search).group_by(_sessions.state)
    rows = await db.execute(query, session_pages.reached(caller))
    return {row[0]: row[1] for row in rows}


def _found(query: Select[Any], caller: Identity, search: Search) -> Select[Any]:
    joined = Session.__table__.join(Project.__table__, _projects.id == _sessions.project_id)
    query = query.select_from(joined).where(*session_pages.within(session_pages.reached(caller)))
    if search.mine:
        query = query.where(_sessions.user_id == caller.id)
    for word in search.text.split():
        query = query.where(or_(*(_contains(column, word) for column in _searched)))
    return query


def _contains(column: Any, word: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = column.icontains(word, autoescape=True)
    return found
