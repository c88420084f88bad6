"""Summary: what somebody has and may have, and what is free in the groups that the work may run in."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import product
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends
from sqlalchemy import Integer, Row, cast, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.auth.identity import Identity
from api.clock import now
from api.lists import session_search, session_views
from api.lists.nodes import Groups, GroupsOfNodes
from api.lists.session_search import Search
from api.resources.groups import service as groups
from api.resources.nodes.repository import IS_OPEN
from api.resources.projects import service as projects
from api.resources.schemas import View
from api.resources.sessions import service as sessions
from api.resources.sessions.views import SessionEntryView
from api.resources.user_policies import service as user_policies
from api.resources.user_policies.service import Limit
from api.tables.nodes import Gpu, Node
from api.tables.projects import Project
from api.tables.sessions import ENDED, HOLDING, HOLDS, Container, GpuShareRow, Kind, Session, State
from common.app_addresses import AppAddresses

SHOWN = 10
ROOM_S = 5.0
"""For so long it is remembered what is free: every viewer asks for it, and to read it means to look at every node."""
WAITS = [state for state in State if state not in (*ENDED, *HOLDING)]
OF = {"name": "sessions"}
"""What a limit is of where the field of a request that says how much is called another way."""


class LimitView(View):
    """What one's sessions hold of one kind together, the most that they may have, and what is left of it.

    `of` is `sessions`, `gpu_milli`, `cpu_milli` or `memory_mib`. `waiting` is what counts beside what is held: of
    sessions that wait, and of containers that elastic ones may still get. null is no limit: each of `held` and
    `waiting` is null where one of those that it counts has none.
    """

    of: str
    held: int | None
    waiting: int | None
    most: int | None
    left: int | None


class GroupRoomView(View):
    """What there is in a resource group where one's work may run, and what of it nobody holds.

    Of its nodes those count that take new sessions; what sessions have of cores or memory without a limit counts as
    nothing. The group without a name is of the nodes that are in none.
    """

    name: str
    nodes: int
    gpu_milli: int
    free_gpu_milli: int
    cpu_milli: int
    free_cpu_milli: int
    memory_mib: int
    free_memory_mib: int


class ProjectShareView(View):
    """A project that one may use now: its quota of GPUs, and what its sessions hold of them, in milli-GPU."""

    name: str
    quota_milli: int
    used_milli: int
    over_quota: bool


class SummaryView(View):
    """What somebody runs, then what waits, newest first, and may run. There are `more` sessions than are named."""

    sessions: list[SessionEntryView]
    more: bool
    limits: list[LimitView]
    groups: list[GroupRoomView]
    projects: list[ProjectShareView]


Room = Mapping[str, tuple[int, ...]]
"""The amounts of a `GroupRoomView` by the name of the group."""


class RoomOfGroups:
    """Remembers for a moment what there is in each group and what of it is free; one for each process."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._room: Room = {}
        self._read_at = float("-inf")

    async def by_group(self, db: AsyncSession, groups_of_nodes: GroupsOfNodes) -> Room:
        """Return what there is in each group that has a node which takes new sessions."""
        if self._read_at + ROOM_S < time.monotonic():
            by_node = await groups_of_nodes.by_node(db)
            self._room, self._read_at = _added_up(await _nodes(db), by_node), time.monotonic()
        return self._room


async def room_of(connection: HTTPConnection) -> RoomOfGroups:
    """Return what the application remembers to be free."""
    remembered: RoomOfGroups = connection.app.state.room_of_groups
    return remembered


RememberedRoom = Annotated[RoomOfGroups, Depends(room_of)]


async def read(
    db: AsyncSession, caller: Identity, room: Room, *, apps: AppAddresses, limit: int = SHOWN
) -> SummaryView:
    """Return what a caller runs, at most `limit` sessions of it, and may run."""
    ids, more = await _live(db, caller, limit)
    used = await sessions.used_by_project(db)
    open_now = [project for project in await projects.visible(db, caller) if projects.is_active(project, now())]
    return SummaryView(
        sessions=await session_views.entries(db, ids, apps),
        more=more,
        limits=[_limit(limit) for limit in await user_policies.limits(db, caller.id)],
        groups=_shown(room, await _possible(db, caller, open_now)),
        projects=[
            ProjectShareView(
                name=project.name,
                quota_milli=project.quota_milli,
                used_milli=used.get(project.id, 0),
                over_quota=project.over_quota,
            )
            for project in open_now
        ],
    )


async def _live(db: AsyncSession, caller: Identity, limit: int) -> tuple[list[UUID], bool]:
    """Return what runs of a caller's, then what waits, and whether there is more: a batch that waits hides no run."""
    ids, more = await session_search.page(db, caller, Search(mine=True, states=[*HOLDING]), limit=limit)
    if more:
        return ids, True
    waiting, more = await session_search.page(db, caller, Search(mine=True, states=WAITS), limit=limit)
    together = [*ids, *waiting]
    return together[:limit], more or len(together) > limit


def _limit(limit: Limit) -> LimitView:
    held, waiting, most = limit.held, limit.waiting, limit.most
    left = 0 if most is None or held is None or waiting is None else max(0, most - held - waiting)
    return LimitView(
        of=OF.get(limit.where, limit.where),
        held=held,
        waiting=waiting,
        most=most,
        left=None if most is None else left,
    )


async def _possible(db: AsyncSession, caller: Identity, own: Collection[Project]) -> set[str]:
    """Return the groups where sessions of some projects may run; the one without a name is of the other nodes."""
    permissions, names = await groups.permissions(db), set[str]()
    for project, kind in product(own, Kind):
        allowed, grouped_only = permissions.allowed(caller.id, project, kind)
        names.update(allowed or (), () if grouped_only else ("",))
    return names


async def _nodes(db: AsyncSession) -> list[Row[Any]]:
    """Return the nodes that take new sessions: name, what they have and what of it is free."""
    orphaned = func.coalesce(cast(Node.orphaned_milli[Gpu.uuid].astext, Integer), 0)
    gpus = select(Gpu.node_id, func.sum(Gpu.capacity_milli).label("gpu_milli"), func.sum(orphaned).label("orphaned"))
    of_gpus = gpus.join(Node, Node.id == Gpu.node_id).group_by(Gpu.node_id).subquery().c
    placed = select(Container.node_id).join(Session, Session.id == Container.session_id).where(HOLDS)
    sizes = placed.add_columns(func.sum(Session.cpu_milli).label("cpu"), func.sum(Session.memory_mib).label("memory"))
    of_sizes = sizes.group_by(Container.node_id).subquery().c
    shares = placed.join(Container.gpu_shares).add_columns(func.sum(GpuShareRow.milli).label("milli"))
    of_shares = shares.group_by(Container.node_id).subquery().c
    gpu_milli = func.coalesce(of_gpus.gpu_milli, 0)
    held = func.coalesce(of_shares.milli, 0) + func.coalesce(of_gpus.orphaned, 0)
    cpu = func.coalesce(of_sizes.cpu, 0) + Node.foreign_cpu_milli
    memory = func.coalesce(of_sizes.memory, 0) + Node.foreign_memory_mib
    query = (
        select(Node.name, gpu_milli, gpu_milli - held, Node.cpu_milli, Node.cpu_milli - cpu)
        .add_columns(Node.memory_mib, Node.memory_mib - memory)
        .outerjoin(of_gpus.node_id.table, of_gpus.node_id == Node.id)
        .outerjoin(of_sizes.node_id.table, of_sizes.node_id == Node.id)
        .outerjoin(of_shares.node_id.table, of_shares.node_id == Node.id)
        .where(IS_OPEN)
    )
    return list(await db.execute(query))


def _added_up(nodes: list[Row[Any]], by_node: Groups) -> Room:
    """Return what nodes have and what of it is free, by group."""
    sums: defaultdict[str, tuple[int, ...]] = defaultdict(lambda: (0,) * 7)
    for name, *amounts in (tuple(node) for node in nodes):
        for group in by_node.get(name) or ("",):
            # what sessions hold without a limit, or more than there is, leaves nothing
            sums[group] = tuple(has + max(0, int(more)) for has, more in zip(sums[group], (1, *amounts), strict=True))
    return dict(sorted(sums.items()))


def _shown(room: Room, possible: Collection[str]) -> list[GroupRoomView]:
    fields = [field for field in GroupRoomView.model_fields if field != "name"]
    mine = [(group, amounts) for group, amounts in room.items() if group in possible]
    return [GroupRoomView(name=group, **dict(zip(fields, amounts, strict=True))) for group, amounts in mine]
