"""Sessions as people see them: plain columns of a few queries, for lists are long and asked for often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from pydantic_core import to_json
from sqlalchemy import Row, Select, and_, func, select, text
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among, among_told
from api.resources.sessions import elastic, mounts
from api.resources.sessions.submission import WAITS
from api.resources.sessions.views import ContainerView, SessionEntryView, SessionView
from api.tables.nodes import Gpu, Node
from api.tables.projects import Project
from api.tables.sessions import Container, GpuShareRow, Service, Session, State
from common.app_addresses import AppAddresses
from common.gpu.share import memory_limit
from common.sentence import sentence_of

_MADE = {"project", "user", "node", "gpus", "containers", "services", "url", "urls"}
_OF_CONTAINER = [name for name in ContainerView.model_fields if name != "gpus"]
_PORT = func.json_build_array(Service.port, Service.path, Service.base_path)
_PORTS = (
    select(func.coalesce(func.json_agg(aggregate_order_by(_PORT, Service.port)), text("'[]'")))
    .where(Service.session_id == Session.id)
    .scalar_subquery()
    .label("app_ports")
)
_NAMES = (Project.name.label("project"), Session.user_name.label("user"))

ViewT = TypeVar("ViewT", bound=SessionEntryView)

Shown = dict[str, Any]
"""What a view has, not checked: it comes from our own tables."""


async def texts(db: AsyncSession, ids: Collection[UUID], apps: AppAddresses) -> dict[UUID, bytes]:
    """Return sessions as the JSON of a `SessionEntryView`, those that are there."""
    return {row["id"]: to_json(row) for row in await _shown(db, SessionEntryView, ids, apps)}


async def entries(db: AsyncSession, ids: Sequence[UUID], apps: AppAddresses) -> list[SessionEntryView]:
    """Return sessions by their ids, in that order; what the transaction has changed is in them."""
    return await _views(db, SessionEntryView, ids, apps)


async def view(db: AsyncSession, session_id: UUID, apps: AppAddresses) -> SessionView:
    """Return one session with all that lists leave out; what the transaction has changed is in it."""
    return (await _views(db, SessionView, [session_id], apps))[0]


async def _views(db: AsyncSession, kind: type[ViewT], ids: Sequence[UUID], apps: AppAddresses) -> list[ViewT]:
    await db.flush()
    found = {row["id"]: kind.model_validate(row) for row in await _shown(db, kind, ids, apps)}
    return [found[id_] for id_ in ids]


async def _shown(
    db: AsyncSession, kind: type[SessionEntryView], ids: Collection[UUID], apps: AppAddresses
) -> list[Shown]:
    rows = (await db.execute(_rows(kind), {"ids": list(ids)})).all()
    placed = [row.id for row in rows if row.state is not State.PENDING]
    containers = await _containers(db, placed) if placed else {}
    return [_session(kind, row, containers.get(row.id, []), _services(row.id, row.app_ports, apps)) for row in rows]


@cache
def _rows(kind: type[SessionEntryView]) -> Select[*tuple[Any, ...]]:
    columns = [*_NAMES, *(getattr(Session, name) for name in kind.model_fields if name not in _MADE)]
    columns += [Session.reason_parts, *((Session.not_grown_parts, Session.replicas_at) if kind is SessionView else ())]
    query = select(*columns, _PORTS).join(Project, Project.id == Session.project_id)
    return query.where(among_told(Session.id, "ids"))


def _session(
    kind: type[SessionEntryView], row: Row[*tuple[Any, ...]], containers: list[Shown], services: list[Shown]
) -> Shown:
    urls = [service["url"] for service in services if service["url"]]
    values = row._asdict() | {
        "reason": sentence_of(row.reason, row.reason_parts),
        "node": containers[0]["node"] if containers else None,
        "gpus": containers[0]["gpus"] if containers else [],
        "containers": containers,
        "services": services,
        "url": urls[0] if urls else None,
        "urls": urls,
    }
    if kind is SessionView:
        values |= {"environment": sorted(row.environment), "mounts": mounts.shown(row.mounts)}
        is_growing = row.state is State.RUNNING and row.replicas < row.max_replicas
        values["not_grown"] = _not_grown(row, containers) if is_growing else ""
    return {name: values[name] for name in kind.model_fields}


def _not_grown(row: Row[*tuple[Any, ...]], containers: list[Shown]) -> str:
    """Return why a session gets no further containers; before the scheduler has said so, what it waits for."""
    if row.not_grown:
        return sentence_of(row.not_grown, row.not_grown_parts)
    return elastic.rests((each["status"] for each in containers), row.replicas_at) or WAITS


async def _containers(db: AsyncSession, ids: Collection[UUID]) -> defaultdict[UUID, list[Shown]]:
    held = and_(GpuShareRow.session_id == Container.session_id, GpuShareRow.rank == Container.rank)
    query = (
        select(Container.session_id, Container.rank, Container.status, Container.error, Container.exit_code)
        .add_columns(Container.enforcement, Container.warning, Container.nccl, Node.name.label("node"))
        .add_columns(GpuShareRow.index.label("gpu"), GpuShareRow.uuid, GpuShareRow.milli)
        .add_columns(Gpu.memory_mib, Gpu.model, Gpu.profile, Gpu.parent)
        .join(Node, Node.id == Container.node_id)
        .outerjoin(GpuShareRow, held)
        .outerjoin(Gpu, and_(Gpu.node_id == Container.node_id, Gpu.uuid == GpuShareRow.uuid))
        .where(among(Container.session_id, ids))
        .order_by(Container.session_id, Container.rank, GpuShareRow.index)
    )
    found: defaultdict[UUID, list[Shown]] = defaultdict(list)
    for row in await db.execute(query):
        containers = found[row.session_id]
        if not containers or containers[-1]["rank"] != row.rank:
            values = {name: getattr(row, name) for name in _OF_CONTAINER}
            containers.append(values | {"gpus": [], "nccl": row.nccl or None})
        if row.uuid is not None:
            containers[-1]["gpus"].append(_share(row))
    return found


def _share(row: Row[Any]) -> Shown:
    """Return a share with how much of the memory it is."""
    memory_mib = row.memory_mib
    if memory_mib is not None and not row.parent:
        memory_mib = memory_limit(memory_mib, row.milli)
    return {
        "index": row.gpu,
        "uuid": row.uuid,
        "milli": row.milli,
        "memory_mib": memory_mib,
        "model": row.model or "",
        "profile": row.profile or "",
    }


def _services(id_: UUID, ports: Sequence[tuple[int, str, str | None]], apps: AppAddresses) -> list[Shown]:
    return [{"port": port, "url": apps.address(id_, port, path, base_path)} for port, path, base_path in ports]
