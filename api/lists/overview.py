"""The whole site at a glance: what there is of it, who holds how much, and what waits, summed up by the database."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends
from sqlalchemy import Row, and_, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.auth.identity import Identity
from api.clock import now
from api.database import fingerprint
from api.lists import nodes, queue, session_search, session_views
from api.lists.nodes import Groups
from api.lists.session_search import Search
from api.resources.nodes.repository import IS_OPEN
from api.resources.nodes.schemas import NodeView
from api.resources.schemas import View
from api.resources.sessions.views import QueueEntryView, SessionEntryView
from api.tables.metrics import GpuSample
from api.tables.nodes import Gpu, Node
from api.tables.projects import Project
from api.tables.sessions import HOLDING, HOLDS, LISTED, Container, GpuShareRow, Session, State
from common.app_addresses import AppAddresses
from common.natural_order import natural

IDLE_AFTER = timedelta(minutes=10)
"""What was not busy for so long is idle, though a session holds it. Samples of it are not packed yet."""
IDLE_S = 15.0
"""For so long it is remembered what is idle: agents take a sample as often, and this looks at every share."""
SHOWN = 10
BOXES = 100
"""Sessions of each list and nodes, unless it is said."""


class ProjectTotals(View):
    """What a project has of GPUs, in milli-GPU: its quota, what its sessions hold, are idle with, and wait for."""

    name: str
    domain: str | None
    quota_milli: int
    used_milli: int
    idle_milli: int
    waiting_milli: int
    waiting: int


class OverviewView(View):
    """The site at a glance. Of `node_count` nodes, `open_count` take new sessions; GPUs are in milli-GPU.

    Of the `gpu_milli` that there are, sessions hold `used_milli`, of which `idle_milli` did nothing for ten minutes,
    and sessions that wait ask for `waiting_milli`. `sessions` counts those that a list has, by state. Of `projects`
    those that hold most come first, of `running` the newest, of `waiting` those whose turn is next, and of `nodes`
    those that take nothing new; of sessions and nodes there are so many as were asked for.
    """

    node_count: int
    open_count: int
    gpu_milli: int
    used_milli: int
    idle_milli: int
    waiting_milli: int
    sessions: dict[State, int]
    projects: list[ProjectTotals]
    running: list[SessionEntryView]
    waiting: list[QueueEntryView]
    nodes: list[NodeView]


@dataclass(frozen=True)
class NodeTotals:
    """What nodes come to; `revision` is another number whenever any of them is another one to the scheduler."""

    count: int
    open: int
    gpu_milli: int
    revision: object


Idle = Mapping[UUID, int]
"""Milli-GPU that are idle, by project."""


class IdleGpus:
    """Remembers for a moment what sessions hold and do not use; one for each process."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._idle: Idle = {}
        self._read_at = float("-inf")

    async def by_project(self, db: AsyncSession) -> Idle:
        """Return what is idle of what the sessions of each project hold."""
        if self._read_at + IDLE_S < time.monotonic():
            self._idle, self._read_at = await idle(db, now()), time.monotonic()
        return self._idle


async def idle_gpus_of(connection: HTTPConnection) -> IdleGpus:
    """Return what the application remembers to be idle."""
    remembered: IdleGpus = connection.app.state.idle_gpus
    return remembered


RememberedIdle = Annotated[IdleGpus, Depends(idle_gpus_of)]

_CAPACITY = select(func.coalesce(func.sum(Gpu.capacity_milli), 0)).scalar_subquery()


async def node_totals(db: AsyncSession) -> NodeTotals:
    """Return what all nodes come to."""
    query = select(func.count(), func.count().filter(IS_OPEN), _CAPACITY, fingerprint(Node.id, Node.revision))
    count, open_, gpu_milli, revision = (await db.execute(query.select_from(Node))).one()
    return NodeTotals(count, open_, int(gpu_milli), revision)


async def idle(db: AsyncSession, at: datetime) -> Idle:
    """Return what sessions of each project held at a moment and did not use, of GPUs whose agents tell that."""
    since = at - IDLE_AFTER
    sample = and_(
        GpuSample.session_id == GpuShareRow.session_id,
        GpuSample.rank == GpuShareRow.rank,
        GpuSample.uuid == GpuShareRow.uuid,
        GpuSample.at_s >= int(since.timestamp()),
    )
    # where nobody can tell how busy it was, nobody says that it is idle
    busy = or_(GpuSample.busy_permille > 0, GpuSample.busy_permille.is_(None))
    query = select(Session.project_id, func.sum(GpuShareRow.milli)).join(
        GpuShareRow, GpuShareRow.session_id == Session.id
    )
    # further containers of an elastic session start later than that did
    query = query.join(Container, and_(Container.session_id == Session.id, Container.rank == GpuShareRow.rank))
    query = query.where(HOLDS, Session.state == State.RUNNING, Session.started_at <= since)
    query = query.where(Container.started_at <= since)
    # a limit keeps PostgreSQL from joining all samples that there are: of most shares the first one found will do
    found = select(GpuSample.at_s).limit(1)
    query = query.where(found.where(sample, busy).scalar_subquery().is_(None))
    query = query.where(found.where(sample).scalar_subquery().is_not(None)).group_by(Session.project_id)
    return {project_id: int(milli) for project_id, milli in await db.execute(query)}


async def read(
    db: AsyncSession,
    caller: Identity,
    totals: NodeTotals,
    idle_by_project: Idle,
    groups: Groups,
    *,
    apps: AppAddresses,
    limit: int = SHOWN,
    boxes: int = BOXES,
) -> OverviewView:
    """Return the site at a glance, with `limit` sessions of each list and `boxes` nodes."""
    rows = await _projects(db)
    projects = [_project(row, idle_by_project) for row in rows]
    running, _ = await session_search.page(db, caller, Search(states=[State.RUNNING]), limit=limit)
    waiting, _ = await queue.page(db, None, limit=limit)
    every = (await db.execute(select(Node.id, Node.name, case((IS_OPEN, 1), else_=0).label("open")))).all()
    shown = [node.id for node in nsmallest(boxes, every, key=lambda node: (node.open, natural(node.name)))]
    found = {node["id"]: node for node in await nodes.rows(db, shown, groups)}
    return OverviewView(
        node_count=totals.count,
        open_count=totals.open,
        gpu_milli=totals.gpu_milli,
        used_milli=sum(project.used_milli for project in projects),
        idle_milli=sum(project.idle_milli for project in projects),
        waiting_milli=sum(project.waiting_milli for project in projects),
        sessions=_states(rows),
        projects=sorted(projects, key=lambda project: (-project.used_milli, -project.waiting_milli, project.name)),
        running=await session_views.entries(db, running, apps),
        waiting=waiting,
        nodes=[NodeView.model_validate(found[id_]) for id_ in shown if id_ in found],
    )


async def _projects(db: AsyncSession) -> list[Row[Any]]:
    """Return all projects, each with how many of its sessions are in each state, and what these hold and ask for."""
    asked = func.sum(Session.gpu_milli * Session.replicas)
    states = select(Session.project_id, Session.state, func.count().label("count"))
    states = states.add_columns(func.sum(Session.held_milli).label("held"), asked.label("asked")).where(LISTED)
    of_states = states.group_by(Session.project_id, Session.state).subquery("of_states")
    described = func.json_build_array(of_states.c.state, of_states.c.count, of_states.c.held, of_states.c.asked)
    every = func.json_agg(described).filter(of_states.c.state.is_not(None)).label("states")
    query = select(Project.id, Project.name, Project.domain, Project.quota_milli, every)
    query = query.outerjoin(of_states, of_states.c.project_id == Project.id).group_by(Project.id)
    return list(await db.execute(query))


def _project(row: Row[Any], idle_by_project: Idle) -> ProjectTotals:
    states = {state: (count, held, asked) for state, count, held, asked in row.states or ()}
    waiting, _, waiting_milli = states.get(State.PENDING, (0, 0, 0))
    used = sum(held for state, (_, held, _) in states.items() if state in HOLDING)
    return ProjectTotals(
        name=row.name,
        domain=row.domain,
        quota_milli=row.quota_milli,
        used_milli=used,
        # what is remembered may have been given back meanwhile
        idle_milli=min(used, idle_by_project.get(row.id, 0)),
        waiting_milli=waiting_milli,
        waiting=waiting,
    )


def _states(rows: list[Row[Any]]) -> dict[State, int]:
    counts: Counter[str] = Counter()
    for row in rows:
        for state, count, *_ in row.states or ():
            counts[state] += count
    return {state: counts[state] for state in State if state is not State.TERMINATED}
