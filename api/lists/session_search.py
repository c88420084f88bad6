"""Sessions as people look for them: newest first, by words, with how many are in each state.

Every console shows such a list. What one has of a session is read by one statement, with the counts; for each kind of
question that is made once, as building it takes longer than the database does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Integer,
    Row,
    Select,
    Text,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.lists import session_pages
from api.tables.projects import Project
from api.tables.sessions import ENDED, Session, State
from api.tables.volumes import SessionVolume
from common.sentence import sentence_of

_sessions, _projects = Session.__table__.c, Project.__table__.c
_searched = _sessions.name + "\n" + _sessions.user_name + "\n" + _sessions.image
"""What words are looked for in, beside the names of projects, as one text: no word goes over the end of a line."""
_SHOWN = (
    *(_sessions.id, _sessions.name, _projects.name.label("project"), _sessions.user_name.label("user")),
    *(_sessions.image, _sessions.state, _sessions.gpu_milli, _sessions.cpu_milli),
    *(_sessions.replicas, _sessions.min_replicas, _sessions.max_replicas),
    *(_sessions.reason, _sessions.reason_parts, _sessions.position),
    *(_sessions.created_at, _sessions.started_at, _sessions.finished_at),
)
_TAKEN_OFF: ColumnElement[str] = literal_column("'TERMINATED'")
"""Written as in the index of those that lists have, or that would be of no use."""
LIVE = [state for state in State if state not in ENDED]
_before = (bindparam("created_at", type_=_sessions.created_at.type), bindparam("id", type_=_sessions.id.type))


@dataclass(frozen=True)
class Search:
    """Which sessions are looked for. `text` is part of a name, of the owner's, the project's or the image's.

    `mine` leaves those of others out, `project_id` those of other projects, `volume_id` those that do not mount that
    volume. Without `states` those that were taken off the lists are left out.
    """

    text: str = ""
    mine: bool = False
    states: Collection[State] = ()
    project_id: UUID | None = None
    volume_id: UUID | None = None


@dataclass(frozen=True)
class Line:
    """What a list shows of a session; the fields are those of a `SessionEntryView`."""

    id: UUID
    name: str
    project: str
    user: str
    image: str
    state: State
    gpu_milli: int
    cpu_milli: int
    replicas: int
    min_replicas: int
    max_replicas: int
    reason: str
    position: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True)
class Lines:
    """Sessions of a list, the cursor of those before them, and how many of all are in each state.

    What states are looked for makes no difference to the counts.
    """

    lines: list[Line]
    before: str | None
    counts: dict[State, int]


async def page(db: AsyncSession, caller: Identity, search: Search, *, limit: int) -> tuple[list[UUID], bool]:
    """Return the ids of sessions that a caller sees, newest first, and whether there are more."""
    asked = _asked(caller, search)
    rows = (await db.scalars(_ids(*_shape(asked, search)), asked | {"limit": limit + 1})).all()
    return list(rows[:limit]), len(rows) > limit


async def lines(db: AsyncSession, caller: Identity, search: Search, *, limit: int, before: str | None = None) -> Lines:
    """Return sessions that a caller sees, newest first; raises InputError for what is no cursor."""
    asked = _asked(caller, search) | session_pages.position(before)
    rows = (await db.execute(_lines(*_shape(asked, search)), asked | {"limit": limit + 1})).all()
    shown = [_line(row) for row in rows if row.id is not None]
    more = session_pages.cursor(shown[limit - 1].created_at, shown[limit - 1].id) if len(shown) > limit else None
    return Lines(shown[:limit], more, {State(state): count for state, count in (rows[0].counts or {}).items()})


def _asked(caller: Identity, search: Search) -> dict[str, Any]:
    """Return the parameters of a statement, but for the limit."""
    asked = session_pages.reached(caller)
    asked |= {"user_id": caller.id} if search.mine else {}
    asked |= {"states": list(search.states)} if search.states else {}
    asked |= {"project_id": search.project_id} if search.project_id else {}
    asked |= {"volume_id": search.volume_id} if search.volume_id else {}
    return asked | {f"word{number}": f"%{_escaped(word)}%" for number, word in enumerate(search.text.split())}


def _shape(asked: Collection[str], search: Search) -> tuple[frozenset[str], int]:
    """Return what makes another statement: the names of its parameters, and how many words are looked for."""
    return frozenset(asked), len(search.text.split())


@cache
def _ids(asked: frozenset[str], words: int) -> Select[*tuple[Any, ...]]:
    found = _found(asked, words).subquery("found")
    return _newest(select(found.c.id), found, asked)


@cache
def _lines(asked: frozenset[str], words: int) -> Select[*tuple[Any, ...]]:
    # where texts have to be looked at, the database does that once for the lines and the counts
    found = _found(asked, words).cte("found") if words else _found(asked, words).subquery("found")
    grouped = select(found.c.state, func.count().label("count")).group_by(found.c.state).subquery()
    counted = select(func.json_object_agg(grouped.c.state, grouped.c.count).label("counts")).subquery()
    joined = found.join(Session.__table__, _sessions.id == found.c.id)
    joined = joined.join(Project.__table__, _projects.id == _sessions.project_id)
    shown = _newest(select(*_SHOWN).select_from(joined), found, asked).subquery("shown")
    query = select(counted.c.counts, *shown.c).select_from(counted.outerjoin(shown, true()))
    return query.order_by(shown.c.created_at.desc(), shown.c.id.desc())


def _newest(query: Select[*tuple[Any, ...]], found: FromClause, asked: Collection[str]) -> Select[*tuple[Any, ...]]:
    """Return a query of what was found for those that a list has, newest first."""
    if "states" in asked:
        query = query.where(found.c.state.in_(bindparam("states", expanding=True)))
    else:
        query = query.where(found.c.state != _TAKEN_OFF)
    if "created_at" in asked:
        query = query.where(tuple_(found.c.created_at, found.c.id) < tuple_(*_before))
    return query.order_by(found.c.created_at.desc(), found.c.id.desc()).limit(bindparam("limit", type_=Integer))


def _found(asked: frozenset[str], words: int) -> Select[*tuple[Any, ...]]:
    """Return the query of the sessions whose states are counted."""
    query = select(_sessions.id, _sessions.created_at, _sessions.state)
    if any(name.endswith("domain") for name in asked):
        query = query.join(Project.__table__, _projects.id == _sessions.project_id)
    query = query.where(*session_pages.within(asked))
    if "user_id" in asked:
        query = query.where(_sessions.user_id == bindparam("user_id", type_=_sessions.user_id.type))
    if "project_id" in asked:
        # in the statement, as in other lists: PostgreSQL plans for this project
        query = query.where(_sessions.project_id == bindparam("project_id", literal_execute=True))
    if "volume_id" in asked:
        of_volume = select(SessionVolume.session_id).where(SessionVolume.volume_id == bindparam("volume_id"))
        query = query.where(_sessions.id.in_(of_volume))
    for number in range(words):
        word = bindparam(f"word{number}", type_=Text)
        of_projects = select(_projects.id).where(_has(_projects.name, word))
        query = query.where(or_(_sessions.project_id.in_(of_projects), _has(_searched, word)))
    return query


def _has(text: ColumnElement[str], word: ColumnElement[str]) -> ColumnElement[bool]:
    # `ILIKE` would do the same, and take longer: it looks at each pattern anew for each row
    return func.lower(text).like(func.lower(word), escape="/")


def _line(row: Row[*tuple[Any, ...]]) -> Line:
    values = row._asdict()
    del values["counts"]
    return Line(**values | {"reason": sentence_of(values["reason"], values.pop("reason_parts"))})


def _escaped(word: str) -> str:
    return word.replace("/", "//").replace("%", "/%").replace("_", "/_")
