"""Queries of health."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVarTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, case, delete, false, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among
from api.settings import Settings
from api.tables.health import HealthAlert, HealthChange, HealthCheck, Source
from api.tables.nodes import Node, NodeState
from api.tables.written import written
from common.checks import CheckState

Ts = TypeVarTuple("Ts")
SILENT = 2
"""So many heartbeats that did not come make an agent silent."""


class Agent(NamedTuple):
    """What tells whether the agent of a node is well; `unknown_ids` is None where there are no `unknown_containers`."""

    id: UUID
    name: str
    state: NodeState
    last_seen: datetime | None
    unknown_containers: int
    unknown_ids: list[str] | None
    silent: bool


_name = func.coalesce(Node.name, HealthCheck.node_name)
"""The name of a check's node, which has an agent or not; empty for the site."""


def _listed() -> Select[HealthCheck, str]:
    query = select(HealthCheck, _name).outerjoin(Node, Node.id == HealthCheck.node_id)
    return query.order_by(_name, HealthCheck.check_id, HealthCheck.thing)


async def listed(db: AsyncSession, node: str | None, states: Collection[CheckState]) -> Sequence[Row[HealthCheck, str]]:
    """Return checks with the names of their nodes: of a node, `""` for the site, in some states."""
    return (await db.execute(_chosen(_listed(), node, states))).all()


async def worst(
    db: AsyncSession, node: str | None, states: Sequence[CheckState], limit: int
) -> Sequence[Row[HealthCheck, str]]:
    """Return so many checks with the names of their nodes, by state in the order of `states`."""
    order = case({state: number for number, state in enumerate(states)}, value=HealthCheck.state)
    query = _chosen(_listed().order_by(None), node, states)
    return (await db.execute(query.order_by(order, _name, HealthCheck.check_id, HealthCheck.thing).limit(limit))).all()


async def mark(db: AsyncSession, node: str | None, states: Collection[CheckState]) -> tuple[int, str]:
    """Return how many checks there are, and a text that is another one whenever one of them or of the changes is."""
    last = select(func.max(HealthChange.number)).scalar_subquery()
    query = select(*written(HealthCheck), last)
    query = query.select_from(HealthCheck).outerjoin(Node, Node.id == HealthCheck.node_id)
    count, *rest = (await db.execute(_chosen(query, node, states))).one()
    return count, repr((count, *rest))


def _chosen(query: Select[*Ts], node: str | None, states: Collection[CheckState]) -> Select[*Ts]:
    if node is not None:
        query = query.where(_name == node)
    if states:
        query = query.where(HealthCheck.state.in_(states))
    return query


async def by_id(db: AsyncSession, id_: UUID, *, locked: bool) -> Row[HealthCheck, str] | None:
    """Return a check with the name of its node, locked until the transaction ends where that is said."""
    query = _listed().where(HealthCheck.id == id_)
    return (await db.execute(query.with_for_update(of=HealthCheck) if locked else query)).one_or_none()


async def of_nodes(db: AsyncSession, nodes: Collection[UUID], source: Source | None = None) -> Sequence[HealthCheck]:
    """Return the checks of nodes, of all sources or one."""
    query = select(HealthCheck).where(among(HealthCheck.node_id, nodes))
    if source:
        query = query.where(HealthCheck.source == source)
    return (await db.scalars(query.order_by(HealthCheck.check_id, HealthCheck.thing))).all()


async def of_source(db: AsyncSession, *sources: Source) -> Sequence[HealthCheck]:
    """Return the checks of the site itself, and of nodes without an agent, that some sources make."""
    return (
        await db.scalars(select(HealthCheck).where(HealthCheck.node_id.is_(None), HealthCheck.source.in_(sources)))
    ).all()


async def heard(db: AsyncSession, check_id: str) -> datetime | None:
    """Return when the controller's own check occurred last."""
    query = select(HealthCheck.occurred_at).where(*_own(check_id))
    return (await db.scalars(query)).one_or_none()


async def note_heard(db: AsyncSession, check_id: str, at: datetime, every: timedelta) -> None:
    """Let the controller's own check have occurred, unless it has within `every`."""
    # one of later than this moment is of a clock that was put back
    is_time = (HealthCheck.occurred_at < at - every) | (HealthCheck.occurred_at > at)
    own = update(HealthCheck).where(*_own(check_id), is_time)
    await db.execute(own.values(occurred_at=at))


def _own(check_id: str) -> tuple[ColumnElement[bool], ...]:
    of_controller = HealthCheck.source == Source.CONTROLLER
    return HealthCheck.node_id.is_(None), HealthCheck.node_name == "", of_controller, HealthCheck.check_id == check_id


def add(db: AsyncSession, row: HealthCheck | HealthChange | HealthAlert) -> None:
    """Add a row to the transaction."""
    db.add(row)


async def remove(db: AsyncSession, rows: Collection[HealthCheck]) -> None:
    """Delete checks."""
    for row in rows:
        await db.delete(row)


async def changes(
    db: AsyncSession, node: str | None, check: str | None, before: int | None, limit: int
) -> Sequence[HealthChange]:
    """Return changes, the newest first: of a node, of a check, before a number."""
    query = select(HealthChange).order_by(HealthChange.number.desc()).limit(limit)
    if node is not None:
        query = query.where(HealthChange.node == node)
    if check is not None:
        query = query.where(HealthChange.check_id == check)
    if before is not None:
        query = query.where(HealthChange.number < before)
    return (await db.scalars(query)).all()


async def state_before(db: AsyncSession, node: str, check: HealthCheck) -> CheckState | None:
    """Return the state that a check of a node had before it changed last; None where that is forgotten."""
    query = select(HealthChange.before).where(
        HealthChange.node == node, HealthChange.check_id == check.check_id, HealthChange.thing == check.thing
    )
    return await db.scalar(query.order_by(HealthChange.number.desc()).limit(1))


class Well(NamedTuple):
    """When a check became well last, and when it was well last, as it came to another state; None: not known."""

    since: datetime | None
    until: datetime | None


async def last_well(db: AsyncSession, nodes: Collection[str], at: datetime) -> Mapping[tuple[str, str, str], Well]:
    """Return when the checks of nodes, `""` for the site, were well last, by node, check and thing.

    What is of later than `at` is of a clock that was put back since, and says nothing.
    """
    key = HealthChange.node, HealthChange.check_id, HealthChange.thing
    last = func.max(HealthChange.at)
    became, was = HealthChange.after == CheckState.OK, HealthChange.before == CheckState.OK
    well = select(*key, last.filter(became), last.filter(was)).where(
        among(HealthChange.node, nodes), became | was, HealthChange.at <= at
    )
    return {
        (node, check, thing): Well(since, until)
        for node, check, thing, since, until in await db.execute(well.group_by(*key))
    }


async def forget(db: AsyncSession, before: datetime, limit: int) -> int:
    """Delete changes of before a moment, so many at most; returns how many."""
    old = select(HealthChange.number).where(HealthChange.at < before).limit(limit)
    done = delete(HealthChange).where(HealthChange.number.in_(old)).returning(HealthChange.number)
    return len((await db.scalars(done)).all())


async def noted(db: AsyncSession, node: str, since: datetime, besides: str) -> int:
    """Return how many changes of a node were noted since a moment, besides those of one check."""
    query = select(func.count()).where(HealthChange.node == node, HealthChange.at >= since)
    return await db.scalar(query.where(HealthChange.check_id != besides)) or 0


async def waiting(db: AsyncSession, node: str) -> tuple[int, int]:
    """Return how many alerts wait, and how many of them are of a node."""
    of_node = func.count().filter(HealthAlert.told["node"].astext == node)
    row = (await db.execute(select(func.count(), of_node).select_from(HealthAlert))).one()
    return row[0], row[1]


def is_due(at: datetime) -> ColumnElement[bool]:
    """Return that an alert is to be sent now."""
    return HealthAlert.due_at <= at


async def due(db: AsyncSession, at: datetime, limit: int) -> Sequence[HealthAlert]:
    """Return the alerts to send now, the oldest first."""
    query = select(HealthAlert).where(HealthAlert.due_at <= at).order_by(HealthAlert.number).limit(limit)
    return (await db.scalars(query)).all()


async def told(db: AsyncSession, number: int) -> None:
    """Let go of an alert."""
    await db.execute(delete(HealthAlert).where(HealthAlert.number == number))


def silent_s(settings: Settings) -> float:
    """Return after how long without a heartbeat an agent is silent."""
    return SILENT * settings.heartbeat_interval_s


def is_silent(settings: Settings, at: datetime) -> ColumnElement[bool]:
    """Return that a node's agent is silent."""
    return Node.last_seen < at - timedelta(seconds=silent_s(settings))


async def agents(db: AsyncSession, settings: Settings, at: datetime) -> Sequence[Agent]:
    """Return the agents of all nodes; their columns alone, for whole nodes take several times as long to read."""
    ids = case((Node.unknown_containers > 0, Node.unknown_ids))
    query = select(Node.id, Node.name, Node.state, Node.last_seen, Node.unknown_containers, ids)
    rows = await db.execute(query.add_columns(func.coalesce(is_silent(settings, at), false())).order_by(Node.name))
    return [Agent(*row) for row in rows]
