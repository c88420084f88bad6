"""Pages of sessions, and a version of each session: a text that is another one whenever it is shown another way.

Every console asks for this all the time. The statements are of tables and not of classes, and each is made once:
building one takes longer than the database does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity, Reach
from api.lists.texts import Entry, Page, said, server
from api.resources.sessions.access import SessionReach, seen_by
from api.tables.nodes import Gpu, Node
from api.tables.projects import Access, Project
from api.tables.sessions import LISTED, Container, GpuShareRow, Service, Session, State
from api.tables.written import written, written_by
from common.app_addresses import AppAddresses
from common.errors import InputError
from common.sentence import Sentence

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_sessions, _projects, _containers = Session.__table__.c, Project.__table__.c, Container.__table__.c
_shares, _services, _nodes, _gpus = (model.__table__.c for model in (GpuShareRow, Service, Node, Gpu))

_order = (_sessions.created_at, _sessions.id)
_last = (bindparam("created_at", type_=_sessions.created_at.type), bindparam("id", type_=_sessions.id.type))
_on_node = select(_containers.session_id).join(Node.__table__, _nodes.id == _containers.node_id)
_CONDITIONS: dict[str, ColumnElement[bool]] = {
    # The id stands in the statement, so that PostgreSQL plans for this project: one that has little would else be
    # looked for among all that the others have.
    "project": _sessions.project_id == bindparam("project", literal_execute=True),
    "user": _sessions.user_name == bindparam("user"),
    "node": _sessions.id.in_(_on_node.where(_nodes.name == bindparam("node"))),
    "states": _sessions.state.in_(bindparam("states", expanding=True)),
    "id": tuple_(*_order) > tuple_(*_last),
}
_WITHIN: dict[str, ColumnElement[bool]] = {
    "domain": _projects.domain == bindparam("domain"),
    "projects": _sessions.project_id.in_(bindparam("projects", expanding=True)),
}
_PRIVATE_WITHIN: dict[str, ColumnElement[bool]] = {
    "private_domain": _projects.domain == bindparam("private_domain"),
    "private_projects": _sessions.project_id.in_(bindparam("private_projects", expanding=True)),
    "private_of": _sessions.user_id == bindparam("private_of"),
}


@dataclass(frozen=True)
class Filters:
    """Which sessions to list; None and an empty set ask for nothing. `ended` says whether those taken off count too."""

    project: str | None = None
    user: str | None = None
    node: str | None = None
    states: Collection[State] = ()
    ended: bool = False


async def page(
    db: AsyncSession, caller: Identity, filters: Filters, *, limit: int, after: str | None, apps: AppAddresses
) -> Page:
    """Return which sessions a page has that a caller may see, oldest first; raises InputError for what is no cursor."""
    asked = reached(caller) | _filtered(filters) | position(after)
    if filters.project is not None:
        asked["project"] = await db.scalar(select(_projects.id).where(_projects.name == filters.project))
        if asked["project"] is None:
            return Page([], more=False)
    listed = not (filters.states or filters.ended)
    statement = _statement(frozenset(asked), listed=listed)
    rows = (await db.execute(statement, asked | {"limit": limit + 1})).all()
    entries = [Entry(row.id, row.version, cursor(row.created_at, row.id)) for row in rows[:limit]]
    return Page(entries, len(rows) > limit, (filters, limit, apps))


@cache
def _statement(asked: frozenset[str], *, listed: bool) -> Select[Any]:
    """Return the statement for what is asked: the names of its parameters, but for the limit.

    `listed` leaves out those that were taken off the lists.
    """
    joined = Session.__table__.join(Project.__table__, _projects.id == _sessions.project_id)
    columns = (_sessions.id, _sessions.created_at, written_by(Session).label("written"))
    query = select(*columns).select_from(joined)
    query = query.where(*(condition for name, condition in _CONDITIONS.items() if name in asked))
    query = query.where(LISTED) if listed else query
    query = query.where(*within(asked))
    return _with_versions(query.order_by(*_order).limit(bindparam("limit", type_=Integer)))


def _with_versions(query: Select[Any]) -> Select[Any]:
    page = query.cte("page")
    held = and_(_shares.session_id == _containers.session_id, _shares.rank == _containers.rank)
    places = select(said(*written(Container), *written(GpuShareRow), *written(Gpu))).select_from(
        Container.__table__.outerjoin(GpuShareRow.__table__, held).outerjoin(
            Gpu.__table__, and_(_gpus.node_id == _containers.node_id, _gpus.uuid == _shares.uuid)
        )
    )
    services = select(said(*written(Service))).select_from(Service.__table__)
    version = said(
        server(),
        page.c.written,
        places.where(_containers.session_id == page.c.id).scalar_subquery(),
        services.where(_services.session_id == page.c.id).scalar_subquery(),
    )
    return select(page.c.id, page.c.created_at, version.label("version")).order_by(page.c.created_at, page.c.id)


def within(asked: Collection[str]) -> list[ColumnElement[bool]]:
    """Return the conditions of what a caller sees, by the names of the parameters that `reached` gives."""
    conditions = []
    if seen := [condition for name, condition in _WITHIN.items() if name in asked]:
        conditions.append(or_(*seen))
    if private := [condition for name, condition in _PRIVATE_WITHIN.items() if name in asked]:
        conditions.append(or_(_sessions.access != Access.PRIVATE, *private))
    return conditions


def reached(caller: Identity) -> dict[str, Any]:
    """Return the parameters of `within`: which sessions a caller sees."""
    return _reached(seen_by(caller), caller.id)


def seen(caller: Identity) -> str:
    """Return a text that is the same for all callers who see the same sessions, and for no other."""
    asked = {name: sorted(value) if isinstance(value, list) else value for name, value in reached(caller).items()}
    return repr(sorted(asked.items()))


def _reached(seen: SessionReach, user_id: UUID) -> dict[str, Any]:
    asked = _of_reach(seen.any)
    private = {f"private_{name}": value for name, value in _of_reach(seen.private).items()}
    return asked | private | ({"private_of": user_id} if private and seen.private.own else {})


def _of_reach(reach: Reach) -> dict[str, Any]:
    if reach.everything:
        return {}
    return {"projects": list(reach.projects)} | ({"domain": reach.domain} if reach.domain else {})


def _filtered(filters: Filters) -> dict[str, Any]:
    states = list(filters.states) or None
    asked = {"user": filters.user, "node": filters.node, "states": states}
    return {name: value for name, value in asked.items() if value is not None}


def cursor(created_at: datetime, id_: UUID) -> str:
    """Return the cursor after which a list goes on behind a session."""
    return f"{(created_at - EPOCH) // timedelta(microseconds=1)}.{id_.hex}"


def position(cursor: str | None) -> dict[str, Any]:
    """Return what a cursor says, nothing where there is none; raises InputError for what is no cursor."""
    if cursor is None:
        return {}
    micros, _, id_ = cursor.partition(".")
    try:
        return {"created_at": EPOCH + timedelta(microseconds=int(micros)), "id": UUID(hex=id_)}
    except (ValueError, OverflowError):
        raise InputError(
            Sentence("is no place in the list"),
            where="after",
            hint=Sentence("send what `X-Next` of the answer before said"),
        ) from None
