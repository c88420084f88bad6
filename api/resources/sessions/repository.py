"""Queries of sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Row, Text, and_, bindparam, case, cast, delete, func, select, update
from sqlalchemy.dialects.postgresql import array, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.database import among, among_told, rows_of
from api.resources.sessions.addresses import Taken
from api.tables.projects import Access, Project
from api.tables.sessions import (
    ENDED,
    FAILED,
    HOLDS,
    LIVE,
    WHOLE,
    Container,
    GpuShareRow,
    RankLog,
    Service,
    Session,
    SessionLog,
    State,
)
from api.tables.users import User
from api.tables.volumes import SessionVolume
from common.gpu.share import MILLI

Named = Row[str, State, UUID | None, Access]
"""The name of a session, how far it is, whose it is, and who sees it."""


class LogPart(NamedTuple):
    """The last part of the log of a session's container, of which `limit` bytes are kept."""

    session_id: UUID
    rank: int
    tail: bytes
    limit: int


_LIVE_BY_NAMES = select(Session.name, Session.state, Session.user_id, Session.access).where(
    Session.project_id == bindparam("project_id"),
    among_told(Session.name, "names"),
    LIVE,
)


async def by_name(db: AsyncSession, project_id: UUID, name: str) -> Session | None:
    """Return the session of that name: the live one, else the newest that lists show, else the newest."""
    newest = select(Session.id).where(Session.project_id == project_id, Session.name == name)
    newest = newest.order_by(Session.created_at.desc()).limit(1)
    # each finds its row by an index of its own, however many there were of that name
    # (there is one that lives at most: an order would have PostgreSQL go through those of others by their times)
    steps = [newest.where(LIVE).order_by(None).limit(None), newest.where(FAILED), newest]
    found = func.coalesce(*(step.scalar_subquery() for step in steps))
    return (await db.scalars(select(Session).where(Session.id == found))).one_or_none()


async def by_id(db: AsyncSession, project_id: UUID, session_id: UUID) -> Session | None:
    """Return the session of a project that has that id."""
    return await db.scalar(select(Session).where(Session.project_id == project_id, Session.id == session_id))


async def live_by_names(db: AsyncSession, project_id: UUID, names: Collection[str]) -> dict[str, Named]:
    """Return which of some names live sessions of a project have."""
    rows = await db.execute(_LIVE_BY_NAMES, {"project_id": project_id, "names": list(names)})
    return {row.name: row for row in rows}


async def by_ids(db: AsyncSession, ids: Collection[UUID]) -> dict[UUID, Session]:
    """Return sessions by their ids."""
    return {session.id: session for session in await db.scalars(select(Session).where(among(Session.id, ids)))}


async def whole(db: AsyncSession, ids: Collection[UUID]) -> dict[UUID, Session]:
    """Return sessions with what their containers are made from, by their ids."""
    query = select(Session).where(among(Session.id, ids)).options(WHOLE, selectinload(Session.services))
    return {session.id: session for session in await db.scalars(query)}


async def in_states(
    db: AsyncSession, states: Collection[State], node_ids: Collection[UUID] | None = None
) -> Sequence[Session]:
    """Return the sessions in any of some states, those with a container on some nodes or all, in order of age."""
    query = select(Session).where(Session.state.in_(states))
    if node_ids is not None:
        query = query.where(Session.id.in_(select(Container.session_id).where(among(Container.node_id, node_ids))))
    return (await db.scalars(query.order_by(Session.created_at, Session.id))).all()


async def live_with_volume(db: AsyncSession, volume_id: UUID) -> Sequence[Session]:
    """Return the sessions that have not ended and mount a volume, in order of age."""
    query = select(Session).join(SessionVolume, SessionVolume.session_id == Session.id)
    query = query.where(SessionVolume.volume_id == volume_id, Session.state.not_in(ENDED))
    return (await db.scalars(query.order_by(Session.created_at, Session.id))).all()


async def unlinked(db: AsyncSession, root: str) -> Sequence[Session]:
    """Return the sessions that have not ended and mount something below a folder, without a volume, whole."""
    linked = select(SessionVolume.session_id).where(SessionVolume.session_id == Session.id).exists()
    query = select(Session).where(Session.state.not_in(ENDED), cast(Session.mounts, Text).contains(f'"{root}/'))
    return (await db.scalars(query.where(~linked).order_by(Session.created_at, Session.id).options(WHOLE))).all()


async def count_live(db: AsyncSession, *, project: str | None = None, user: str | None = None) -> int:
    """Return how many sessions of a project or a user have not ended."""
    query = select(func.count()).select_from(Session).where(Session.state.not_in(ENDED))
    if project is not None:
        query = query.join(Project, Project.id == Session.project_id).where(Project.name == project)
    if user is not None:
        query = query.where(Session.user_name == user)
    return (await db.scalar(query)) or 0


async def projects_in_other_domains(db: AsyncSession, user: User) -> list[str]:
    """Return the projects of another domain than the user's own in which the user has live sessions."""
    query = select(Project.name).join(Session, Session.project_id == Project.id).distinct().order_by(Project.name)
    query = query.where(Session.user_id == user.id, Session.state.not_in(ENDED))
    elsewhere = Project.domain.is_not(None), Project.domain.is_distinct_from(user.domain)
    return list(await db.scalars(query.where(*elsewhere)))


async def used_by_project(db: AsyncSession) -> dict[UUID, int]:
    """Return the milli-GPU that each project's sessions hold."""
    query = select(Session.project_id, func.sum(Session.held_milli)).where(HOLDS)
    return {project_id: int(milli) for project_id, milli in await db.execute(query.group_by(Session.project_id))}


IS_RESIZING = and_(Session.resize_milli.is_not(None), Session.state == State.RUNNING)


async def resizing(db: AsyncSession) -> Sequence[Session]:
    """Return the running sessions whose share changes, in order of age."""
    query = select(Session).where(IS_RESIZING)
    return (await db.scalars(query.order_by(Session.created_at, Session.id))).all()


async def set_shares(db: AsyncSession, session_id: UUID, milli: int) -> None:
    """Set every share of a session that is less than a GPU; whole GPUs stay."""
    query = update(GpuShareRow).where(GpuShareRow.session_id == session_id, GpuShareRow.milli < MILLI)
    await db.execute(query.values(milli=milli), execution_options={"synchronize_session": False})


async def held_on(db: AsyncSession, node_ids: Collection[UUID], uuids: Collection[str]) -> dict[tuple[UUID, str], int]:
    """Return the milli-GPU that sessions hold of some GPUs, by node and GPU."""
    query = select(Container.node_id, GpuShareRow.uuid, func.sum(GpuShareRow.milli)).join(Container.gpu_shares)
    query = query.join(Session, Session.id == Container.session_id)
    query = query.where(HOLDS, Container.node_id.in_(node_ids), GpuShareRow.uuid.in_(uuids))
    rows = await db.execute(query.group_by(Container.node_id, GpuShareRow.uuid))
    return {(node_id, uuid): int(milli) for node_id, uuid, milli in rows}


async def held_by_projects(db: AsyncSession, ids: Collection[UUID]) -> dict[UUID, tuple[int, int]]:
    """Return the milli-GPU that each project's sessions hold, and the part of that which cannot be reclaimed."""
    fixed = func.sum(case((Session.preemptible.is_(False), Session.held_milli), else_=0))
    query = select(Session.project_id, func.sum(Session.held_milli), fixed).where(among(Session.project_id, ids), HOLDS)
    rows = await db.execute(query.group_by(Session.project_id))
    return {project_id: (int(held), int(held_fixed)) for project_id, held, held_fixed in rows}


async def remove_containers(db: AsyncSession, session_id: UUID) -> None:
    """Take a session's places away, with what they hold."""
    await db.execute(delete(Container).where(Container.session_id == session_id))


async def remove_services(db: AsyncSession, ids: Collection[UUID]) -> None:
    """Let go of the addresses of sessions at the edge."""
    query = delete(Service).where(among(Service.session_id, ids))
    await db.execute(query, execution_options={"synchronize_session": False})


def add(db: AsyncSession, row: Session | Container) -> None:
    """Add a row to the transaction."""
    db.add(row)


async def reserved_among(db: AsyncSession, nodes: Collection[str]) -> list[str]:
    """Return on which of some nodes places are reserved for sessions that wait."""
    on_some = Session.reserved_on.has_any(array(nodes, type_=Text))
    found = await db.scalars(select(Session.reserved_on).where(Session.state == State.PENDING, on_some))
    return sorted({name for names in found for name in names}.intersection(nodes))


async def taken_paths(db: AsyncSession) -> Taken:
    """Return the paths that live sessions have at the edge, and those that projects have of their own."""
    rows = (await db.execute(select(Service.path, Service.base_path))).all()
    projects = frozenset(await db.scalars(select(Project.name)))
    return Taken(frozenset(path for path, _ in rows), frozenset(base for _, base in rows if base), projects)


async def log_tail(db: AsyncSession, session_id: UUID, rank: int) -> bytes:
    """Return what is kept of the log of a session's container that is gone."""
    if rank == 0:
        query = select(SessionLog.tail).where(SessionLog.session_id == session_id)
    else:
        query = select(RankLog.tail).where(RankLog.session_id == session_id, RankLog.rank == rank)
    return (await db.scalar(query)) or b""


async def keep_logs(db: AsyncSession, parts: Iterable[LogPart]) -> None:
    """Keep the last parts of logs, after what is kept of them already."""
    equal: defaultdict[tuple[type[SessionLog | RankLog], int], list[dict[str, Any]]] = defaultdict(list)
    for part in parts:
        row = {"session_id": part.session_id, "tail": part.tail}
        if part.rank == 0:
            equal[SessionLog, part.limit].append(row)
        else:
            equal[RankLog, part.limit].append(row | {"rank": part.rank})
    for (table, limit), rows in equal.items():
        await _append(db, table, rows, limit)


async def _append(
    db: AsyncSession, table: type[SessionLog | RankLog], rows: Sequence[Mapping[str, Any]], limit: int
) -> None:
    columns = {name: table.__table__.c[name].type for name in rows[0]}
    given = rows_of({name: (type_, [row[name] for row in rows]) for name, type_ in columns.items()})
    query = insert(table).from_select(list(columns), select(*(given.c[name] for name in columns)))
    whole = table.tail.op("||")(query.excluded.tail)
    kept = func.substring(whole, func.greatest(1, func.length(whole) - limit + 1))
    keys = [table.__table__.c[name] for name in columns if name != "tail"]
    await db.execute(query.on_conflict_do_update(index_elements=keys, set_={"tail": kept}))
