"""Sessions as people see them: plain columns of a few queries, for lists are long and asked for often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, and_, false, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among
from api.identity import Identity, Reach
from api.nodes.models import Gpu, Node
from api.policy import Action
from api.projects.models import Project
from api.sessions import marks
from api.sessions.models import Container, Grant, Service, Session, State
from api.sessions.views import ContainerView, GrantView, ServiceView, SessionView, WaitingView
from appliance.gpu.share import memory_limit
from reservoir.errors import InputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MADE = {"project", "user", "node", "gpus", "containers", "services", "url", "urls"}
_PLAIN = [getattr(Session, name) for name in SessionView.model_fields if name not in _MADE]
_OF_CONTAINER = [name for name in ContainerView.model_fields if name != "gpus"]
_COLUMNS = (*_PLAIN, Project.name.label("project"), Session.user_name.label("user"))


@dataclass(frozen=True)
class Filters:
    """Which sessions to list; None and an empty set ask for nothing. `ended` says whether those taken off count too."""

    project: str | None = None
    user: str | None = None
    node: str | None = None
    states: Collection[State] = ()
    ended: bool = False


@dataclass(frozen=True)
class Page:
    """Sessions, oldest first; `following` is the cursor after which the next page begins, None on the last one."""

    sessions: list[SessionView]
    following: str | None


async def mark(
    db: AsyncSession, caller: Identity, filters: Filters, *, limit: int, after: str | None, apps_url: str
) -> str | None:
    """Return what is another text whenever `page` is another page; None where the database cannot tell."""
    reach = caller.reach(Action.SESSION_READ)
    ids = _asked(select(Session.id), reach, filters, after).limit(limit + 1)
    return await marks.of_page(
        db, ids, reach.everything, reach.domain, sorted(reach.projects), filters, limit, apps_url
    )


async def page(
    db: AsyncSession, caller: Identity, filters: Filters, *, limit: int, after: str | None, apps_url: str
) -> Page:
    """Return a page of the sessions that a caller may see; raises InputError for what is no cursor."""
    query = _asked(select(*_COLUMNS), caller.reach(Action.SESSION_READ), filters, after)
    rows = (await db.execute(query.limit(limit + 1))).all()
    views = await _views(db, rows[:limit], apps_url)
    return Page(views, _cursor(rows[limit - 1]) if len(rows) > limit else None)


async def views(db: AsyncSession, ids: Sequence[UUID], apps_url: str) -> list[SessionView]:
    """Return sessions by their ids, in that order; what the transaction has changed is in them."""
    await db.flush()
    query = select(*_COLUMNS).join(Project, Project.id == Session.project_id).where(among(db, Session.id, ids))
    found = {view.id: view for view in await _views(db, (await db.execute(query)).all(), apps_url)}
    return [found[id_] for id_ in ids]


async def waiting(db: AsyncSession) -> list[WaitingView]:
    """Return the sessions that wait, in the order of the queue; those that are in none come last."""
    made = {"project", "user"}
    plain = [getattr(Session, name) for name in WaitingView.model_fields if name not in made]
    query = select(*plain, Project.name.label("project"), Session.user_name.label("user"))
    query = query.join(Project, Project.id == Session.project_id).where(Session.state == State.PENDING)
    order = (Session.position == 0, Session.position, Session.created_at, Session.id)
    return [WaitingView(**row._mapping) for row in await db.execute(query.order_by(*order))]


async def _views(db: AsyncSession, rows: Sequence[Row[Any]], apps_url: str) -> list[SessionView]:
    ids = [row.id for row in rows]
    containers, services = await _containers(db, ids), await _services(db, ids, apps_url)
    found = []
    for row in rows:
        first = next(iter(containers[row.id]), None)
        urls = [service.url for service in services[row.id] if service.url]
        found.append(
            SessionView(
                **row._mapping,
                node=first.node if first else None,
                gpus=first.gpus if first else [],
                containers=containers[row.id],
                services=services[row.id],
                url=urls[0] if urls else None,
                urls=urls,
            )
        )
    return found


async def _containers(db: AsyncSession, ids: Sequence[UUID]) -> defaultdict[UUID, list[ContainerView]]:
    held = and_(Grant.session_id == Container.session_id, Grant.rank == Container.rank)
    query = (
        select(Container.session_id, Container.rank, Container.status, Container.error, Container.exit_code)
        .add_columns(Container.enforcement, Container.warning, Node.name.label("node"))
        .add_columns(Grant.index.label("gpu"), Grant.uuid, Grant.milli)
        .add_columns(Gpu.memory_mib, Gpu.model, Gpu.profile, Gpu.parent)
        .join(Node, Node.id == Container.node_id)
        .outerjoin(Grant, held)
        .outerjoin(Gpu, and_(Gpu.node_id == Container.node_id, Gpu.uuid == Grant.uuid))
        .where(among(db, Container.session_id, ids))
        .order_by(Container.session_id, Container.rank, Grant.index)
    )
    found: defaultdict[UUID, list[ContainerView]] = defaultdict(list)
    for row in await db.execute(query):
        containers = found[row.session_id]
        if not containers or containers[-1].rank != row.rank:
            containers.append(ContainerView(**{name: getattr(row, name) for name in _OF_CONTAINER}, gpus=[]))
        if row.uuid is not None:
            containers[-1].gpus.append(_grant(row))
    return found


def _grant(row: Row[Any]) -> GrantView:
    """Return a grant with what its share of the memory is."""
    memory_mib = row.memory_mib
    if memory_mib is not None and not row.parent:
        memory_mib = memory_limit(memory_mib, row.milli)
    return GrantView(
        index=row.gpu,
        uuid=row.uuid,
        milli=row.milli,
        memory_mib=memory_mib,
        model=row.model or "",
        profile=row.profile or "",
    )


async def _services(db: AsyncSession, ids: Sequence[UUID], apps_url: str) -> defaultdict[UUID, list[ServiceView]]:
    found: defaultdict[UUID, list[ServiceView]] = defaultdict(list)
    query = select(Service.session_id, Service.port, Service.path).where(among(db, Service.session_id, ids))
    for id_, port, path in await db.execute(query.order_by(Service.session_id, Service.port)):
        found[id_].append(ServiceView(port=port, url=f"{apps_url}/{path}/" if apps_url else None))
    return found


def _asked(query: Select[Any], reach: Reach, filters: Filters, after: str | None) -> Select[Any]:
    query = query.join(Project, Project.id == Session.project_id).where(_within(reach), *_conditions(filters))
    if after is not None:
        created_at, id_ = _position(after)
        later = and_(Session.created_at == created_at, Session.id > id_)
        query = query.where(or_(Session.created_at > created_at, later))
    return query.order_by(Session.created_at, Session.id)


def _within(reach: Reach) -> ColumnElement[bool]:
    if reach.everything:
        return true()
    in_domain = Project.domain == reach.domain if reach.domain else false()
    return or_(in_domain, Session.project_id.in_(reach.projects))


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if filters.project is not None:
        conditions.append(Project.name == filters.project)
    if filters.user is not None:
        conditions.append(Session.user_name == filters.user)
    if filters.node is not None:
        here = select(Container.session_id).join(Node, Node.id == Container.node_id).where(Node.name == filters.node)
        conditions.append(Session.id.in_(here))
    if filters.states:
        conditions.append(Session.state.in_(filters.states))
    elif not filters.ended:
        conditions.append(Session.state.in_([state for state in State if state is not State.TERMINATED]))
    return conditions


def _cursor(row: Row[Any]) -> str:
    return f"{(row.created_at - EPOCH) // timedelta(microseconds=1)}.{row.id.hex}"


def _position(cursor: str) -> tuple[datetime, UUID]:
    micros, _, id_ = cursor.partition(".")
    try:
        return EPOCH + timedelta(microseconds=int(micros)), UUID(hex=id_)
    except (ValueError, OverflowError):
        raise InputError(
            f"{cursor} is no cursor of a list", where="after", cure="take it from X-Next of the page before"
        ) from None
