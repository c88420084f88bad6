"""Sessions as people see them: plain columns of a few queries, for lists are long and asked for often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from pydantic_core import to_json
from sqlalchemy import Row, and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among
from api.resources.sessions.views import ContainerView, QueueEntryView, SessionView
from api.tables.nodes import Gpu, Node
from api.tables.projects import Project
from api.tables.sessions import Container, GpuShareRow, Service, Session, State
from common.gpu.share import memory_limit

_MADE = {"project", "user", "node", "gpus", "containers", "services", "url", "urls"}
_PLAIN = [getattr(Session, name) for name in SessionView.model_fields if name not in _MADE]
_OF_CONTAINER = [name for name in ContainerView.model_fields if name != "gpus"]
_COLUMNS = (*_PLAIN, Project.name.label("project"), Session.user_name.label("user"))

Shown = dict[str, Any]
"""What a view has, not checked: it comes from our own tables."""


async def texts(db: AsyncSession, ids: Collection[UUID], apps_url: str) -> dict[UUID, bytes]:
    """Return sessions as the JSON of a `SessionView`, those that are there."""
    return {row["id"]: to_json(row) for row in await _shown(db, ids, apps_url)}


async def views(db: AsyncSession, ids: Sequence[UUID], apps_url: str) -> list[SessionView]:
    """Return sessions by their ids, in that order; what the transaction has changed is in them."""
    await db.flush()
    found = {row["id"]: SessionView.model_validate(row) for row in await _shown(db, ids, apps_url)}
    return [found[id_] for id_ in ids]


async def queue(db: AsyncSession) -> list[QueueEntryView]:
    """Return the sessions that wait, in the order of the queue; those that are in none come last."""
    made = {"project", "user"}
    plain = [getattr(Session, name) for name in QueueEntryView.model_fields if name not in made]
    query = select(*plain, Project.name.label("project"), Session.user_name.label("user"))
    query = query.join(Project, Project.id == Session.project_id).where(Session.state == State.PENDING)
    order = (Session.position == 0, Session.position, Session.created_at, Session.id)
    return [QueueEntryView(**row._mapping) for row in await db.execute(query.order_by(*order))]


async def _shown(db: AsyncSession, ids: Collection[UUID], apps_url: str) -> list[Shown]:
    query = select(*_COLUMNS).join(Project, Project.id == Session.project_id).where(among(Session.id, ids))
    rows = (await db.execute(query)).all()
    containers, services = await _containers(db, ids), await _services(db, ids, apps_url)
    return [_session(row, containers[row.id], services[row.id]) for row in rows]


def _session(row: Row[Any], containers: list[Shown], services: list[Shown]) -> Shown:
    urls = [service["url"] for service in services if service["url"]]
    values = row._asdict() | {
        "node": containers[0]["node"] if containers else None,
        "gpus": containers[0]["gpus"] if containers else [],
        "containers": containers,
        "services": services,
        "url": urls[0] if urls else None,
        "urls": urls,
    }
    return {name: values[name] for name in SessionView.model_fields}


async def _containers(db: AsyncSession, ids: Collection[UUID]) -> defaultdict[UUID, list[Shown]]:
    held = and_(GpuShareRow.session_id == Container.session_id, GpuShareRow.rank == Container.rank)
    query = (
        select(Container.session_id, Container.rank, Container.status, Container.error, Container.exit_code)
        .add_columns(Container.enforcement, Container.warning, Node.name.label("node"))
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
            containers.append({name: getattr(row, name) for name in _OF_CONTAINER} | {"gpus": []})
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


async def _services(db: AsyncSession, ids: Collection[UUID], apps_url: str) -> defaultdict[UUID, list[Shown]]:
    found: defaultdict[UUID, list[Shown]] = defaultdict(list)
    query = select(Service.session_id, Service.port, Service.path).where(among(Service.session_id, ids))
    for id_, port, path in await db.execute(query.order_by(Service.session_id, Service.port)):
        found[id_].append({"port": port, "url": f"{apps_url}/{path}/" if apps_url else None})
    return found
