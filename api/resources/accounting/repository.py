"""Queries of accounting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Double,
    Integer,
    Numeric,
    Row,
    Select,
    Subquery,
    TableValuedAlias,
    and_,
    bindparam,
    case,
    cast,
    column,
    distinct,
    false,
    func,
    insert,
    literal,
    literal_column,
    null,
    or_,
    select,
    text,
    true,
    union_all,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, aliased

from api.auth.identity import Reach
from api.database import rows_of
from api.resources.accounting.schemas import By
from api.tables.accounting import AccountingDay, Span
from api.tables.domains import Domain
from api.tables.nodes import Gpu
from api.tables.projects import Project
from api.tables.sessions import LIVE, Container, GpuShareRow, Session, State
from api.tables.users import User


async def begin(db: AsyncSession, moments: Mapping[UUID, datetime]) -> None:
    """Begin spans of sessions as they are by now, unless they have one; no earlier than where their last one ended."""
    given = _given(moments)
    earlier = select(func.max(Span.ended_at)).where(Span.session_id == Session.id).scalar_subquery()
    has_one = select(Span.id).where(Span.session_id == Session.id, Span.ended_at.is_(None)).exists()
    values: dict[InstrumentedAttribute[Any], Any] = {
        Span.id: func.gen_random_uuid(),
        Span.session_id: Session.id,
        Span.session_name: Session.name,
        Span.user_id: Session.user_id,
        Span.user_name: Session.user_name,
        Span.project_id: Session.project_id,
        Span.project_name: Project.name,
        Span.domain_id: Domain.id,
        Span.domain: Project.domain,
        Span.gpu_milli: func.greatest(Session.held_milli, Session.replicas * Session.gpu_milli),
        Span.gpu_models: _gpu_models(),
        Span.cpu_milli: cast(Session.replicas, BigInteger) * Session.cpu_milli,
        Span.memory_mib: cast(Session.replicas, BigInteger) * Session.memory_mib,
        # of what is null nothing is taken
        Span.started_at: func.greatest(given.c.at, earlier),
        Span.waited_s: case((given.c.at <= earlier, null()), else_=_waited_s(given.c.at, earlier)),
    }
    found = select(*values.values()).join(given, given.c.session_id == Session.id)
    found = found.join(Project, Project.id == Session.project_id)
    found = found.outerjoin(Domain, Domain.name == Project.domain).where(~has_one).order_by(Session.id)
    await db.execute(insert(Span).from_select(list(values), found))


def _gpu_models() -> ColumnElement[Any]:
    """Return what a session holds of each model; of a MIG device its GPU's model counts."""
    whole = aliased(Gpu)
    model, milli = func.coalesce(whole.model, Gpu.model).label("model"), func.sum(GpuShareRow.milli).label("milli")
    query = select(model, milli).select_from(GpuShareRow)
    query = query.join(Container, Container.session_id == GpuShareRow.session_id)
    query = query.join(Gpu, and_(Gpu.node_id == Container.node_id, Gpu.uuid == GpuShareRow.uuid))
    query = query.outerjoin(whole, and_(whole.node_id == Gpu.node_id, whole.uuid == Gpu.parent))
    query = query.where(GpuShareRow.session_id == Session.id, Container.rank == GpuShareRow.rank)
    each = query.group_by(model).correlate(Session).subquery()
    return select(func.jsonb_object_agg(each.c.model, each.c.milli)).scalar_subquery()


async def has_open(db: AsyncSession, session_id: UUID) -> bool:
    """Return whether a session has a span that has not ended."""
    open_ = select(Span.id).where(Span.session_id == session_id, Span.ended_at.is_(None))
    return bool(await db.scalar(select(open_.exists())))


async def domain_id(db: AsyncSession, name: str | None) -> UUID | None:
    """Return the id of the domain of that name."""
    return await db.scalar(select(Domain.id).where(Domain.name == name))


async def close(db: AsyncSession, moments: Mapping[UUID, datetime]) -> None:
    """End the open spans of sessions."""
    given = _given(moments)
    query = update(Span).where(Span.session_id == given.c.session_id, Span.ended_at.is_(None))
    # a clock that was put back makes no time that is less than none
    query = query.values(ended_at=func.greatest(Span.started_at, given.c.at))
    await db.execute(query, execution_options={"synchronize_session": False})


async def move(db: AsyncSession, step: timedelta) -> None:
    """Move the spans of sessions that have not ended."""
    live = select(Session.id).where(LIVE)
    query = update(Span).where(Span.session_id.in_(live))
    query = query.values(started_at=Span.started_at + step, ended_at=Span.ended_at + step)
    await db.execute(query, execution_options={"synchronize_session": False})


@dataclass(frozen=True)
class Wanted:
    """What a report is of: a period, and what is within reach, as their own for the user of an id."""

    starts_at: datetime
    ends_at: datetime
    reach: Reach
    user_id: UUID


async def spans_within(db: AsyncSession, wanted: Wanted, by: By | None) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return what the spans come to, by whose they are or all together: sessions, seconds, milli-GPU-seconds.

    Before these stands whose they are: an id, a name, and the id once more, None where there is none of that id any
    more.
    """
    end = func.least(func.coalesce(Span.ended_at, wanted.ends_at), wanted.ends_at)
    seconds = func.extract("epoch", end - func.greatest(Span.started_at, wanted.starts_at))
    count = func.count(distinct(Span.session_id))
    query = _by(Span, by, (count, func.sum(seconds), func.sum(seconds * Span.gpu_milli)))
    return list(await db.execute(query.where(await held(db, wanted))))


async def steps_within(db: AsyncSession, wanted: Wanted, by: By, step_s: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return what the spans held in each step of the period that they are in, by whose they are: milli-GPU-seconds.

    Before these stands whose they are, as in `spans_within`, and the number of the step.
    """
    begin, end = func.greatest(Span.started_at, wanted.starts_at), func.coalesce(Span.ended_at, wanted.ends_at)
    # doubles, as the numeric of EXTRACT is slow
    from_s = func.date_part("epoch", begin - wanted.starts_at, type_=Double)
    until_s = func.date_part("epoch", func.least(end, wanted.ends_at) - wanted.starts_at, type_=Double)
    step = _told(float(step_s))
    first, last = (cast(func.floor(moment / step), Integer) for moment in (from_s, until_s))
    steps = func.generate_series(first, last).table_valued(column("number", Integer)).render_derived()
    number = steps.c.number
    seconds = func.least(until_s, (number + 1) * step) - func.greatest(from_s, number * step)
    query = _by(Span, by, (number, func.sum(seconds * Span.gpu_milli))).join(steps, true()).group_by(number)
    return list(await db.execute(query.where(await held(db, wanted)).order_by(number)))


async def days_within(db: AsyncSession, wanted: Wanted, by: By | None) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return the same of the days that begin in the period, of whose spans the sums are left."""
    columns = (AccountingDay.sessions, AccountingDay.seconds, AccountingDay.gpu_milli_seconds)
    query = _by(AccountingDay, by, tuple(func.sum(column) for column in columns))
    query = query.where(AccountingDay.day >= _told(wanted.starts_at), AccountingDay.day < _told(wanted.ends_at))
    return list(await db.execute(query.where(await _within(db, _of(AccountingDay), wanted))))


async def costs_within(db: AsyncSession, wanted: Wanted, by: By) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return what the spans come to that has prices, by whose they are and by what they held of which models.

    After an id, a name, and the id once more, as in `spans_within`, that is what they held of models, and the exact
    sums of seconds, and of these multiplied by milli-GPU, thousandths of cores and MiB.
    """
    end = func.least(func.coalesce(Span.ended_at, wanted.ends_at), wanted.ends_at)
    seconds = func.extract("epoch", end - func.greatest(Span.started_at, wanted.starts_at))
    amounts = (func.sum(seconds), *(func.sum(seconds * of) for of in (Span.gpu_milli, Span.cpu_milli, Span.memory_mib)))
    of_spans = _by(Span, by, (Span.gpu_models, *amounts)).group_by(Span.gpu_models)
    day = AccountingDay
    # a double has no more than 15 digits that mean anything, and so many a numeric is made of
    kept = [func.sum(cast(each, Numeric)) for each in (day.seconds, day.gpu_milli_seconds)]
    kept += [func.sum(each) for each in (day.cpu_milli_seconds, day.memory_mib_seconds)]
    of_days = _by(day, by, (day.gpu_models, *kept)).group_by(day.gpu_models)
    of_days = of_days.where(day.day >= _told(wanted.starts_at), day.day < _told(wanted.ends_at))
    of_days = of_days.where(await _within(db, _of(day), wanted))
    return [*await db.execute(of_spans.where(await held(db, wanted))), *await db.execute(of_days)]


async def waits_by(db: AsyncSession, wanted: Wanted, by: By) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return how long was waited for what began in the period, by whose it is.

    That is after an id, a name, and the id once more, as in `spans_within`: how many began, and of their waits the
    median, the 95th percentile and the longest.
    """
    id_, name, there = _whose(Span, by)
    # gathered first: to sort within each is faster than to sort all, or to count by so many keys
    whose = select(id_.label("id"), name.label("name"), func.array_agg(Span.waited_s).label("waits"))
    of = whose.where(await _begun(db, wanted)).group_by(id_, name).subquery()
    wait = func.unnest(of.c.waits, type_=Double).column_valued("wait")
    parts = [func.percentile_disc(literal_column(part)).within_group(wait) for part in ("0.5", "0.95")]
    waits = select(func.count().label("count"), *parts, func.max(wait)).lateral()
    query = select(of.c.id, of.c.name, there, *waits.c).join_from(of, waits, true())
    return list(await db.execute(query.outerjoin(there.class_, there == of.c.id)))


async def waits_over_time(db: AsyncSession, wanted: Wanted, step_s: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return the same after the number of each step of the period in which something began, and for None of all."""
    # a double, as the numeric of EXTRACT is slow
    from_s = func.date_part("epoch", Span.started_at, type_=Double) - _told(wanted.starts_at.timestamp())
    number = cast(func.floor(from_s / _told(float(step_s))), Integer).label("number")
    steps = _counted(await _begun(db, wanted), number).cte("steps")
    sums = (func.sum(steps.c.count).label("count"), func.max(steps.c.longest).label("longest"))
    total = select(cast(null(), Integer).label("number"), steps.c.size, *sums).group_by(steps.c.size)
    waits = _percentiles(union_all(select(steps), total).subquery())
    return list(await db.execute(waits))


async def waiting_by(db: AsyncSession, wanted: Wanted, by: By, at: datetime) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return how many sessions wait, after whose they are as in `spans_within`, and how long the longest has waited."""
    earlier = select(func.max(Span.ended_at)).where(Span.session_id == Session.id).scalar_subquery()
    id_, name = {
        By.USER: (Session.user_id, Session.user_name),
        By.PROJECT: (Project.id, Project.name),
        By.DOMAIN: (Domain.id, Project.domain),
    }[by]
    query = select(id_, name, id_, func.count(), func.max(_waited_s(literal(at), earlier)))
    query = query.join(Project, Project.id == Session.project_id)
    query = query.outerjoin(Domain, Domain.name == Project.domain)
    query = query.where(Session.state == State.PENDING, func.coalesce(Session.starts_at, at) <= at)
    within = await _within(db, (Domain.id, Session.project_id, Session.user_id), wanted)
    return list(await db.execute(query.where(within).group_by(id_, name)))


async def add_up(db: AsyncSession, before: datetime, limit: int) -> int:
    """Put sums by day in the place of the spans of so many sessions that ended before a moment; returns how many."""
    return len((await db.execute(_ADD_UP, {"before": before, "limit": limit})).all())


_ADD_UP = text("""
WITH whose AS (
    SELECT DISTINCT session_id FROM spans WHERE ended_at < :before AND NOT EXISTS (
        SELECT FROM spans later WHERE later.session_id = spans.session_id
        AND (later.ended_at IS NULL OR later.ended_at >= :before)
    ) LIMIT :limit
), gone AS (
    DELETE FROM spans USING whose WHERE spans.session_id = whose.session_id RETURNING spans.*
), parts AS (
    SELECT gone.*, day,
        EXTRACT(epoch FROM LEAST(ended_at, day + interval '24 hours') - GREATEST(started_at, day)) AS seconds,
        started_at >= day AND started_at = MIN(started_at) OVER (PARTITION BY session_id) AS begins
    FROM gone, generate_series(
        date_trunc('day', started_at, 'UTC'), ended_at, interval '24 hours'
    ) AS day
), written AS (
    INSERT INTO accounting_days (
        day, user_id, user_name, project_id, project_name, domain_id, domain, sessions, seconds, gpu_milli_seconds,
        gpu_models, cpu_milli_seconds, memory_mib_seconds
    )
    SELECT day, user_id, user_name, project_id, project_name, domain_id, domain,
        COUNT(*) FILTER (WHERE begins), SUM(seconds), SUM(seconds * gpu_milli),
        gpu_models, SUM(seconds * cpu_milli), SUM(seconds * memory_mib)
    FROM parts GROUP BY day, user_id, user_name, project_id, project_name, domain_id, domain, gpu_models
)
SELECT session_id FROM whose
""")
"""One statement: no report sees both the spans and their sums, or neither."""


def _given(moments: Mapping[UUID, datetime]) -> TableValuedAlias:
    return rows_of({"session_id": (Span.session_id.type, moments), "at": (Span.started_at.type, moments.values())})


def _waited_s(at: ColumnElement[Any], earlier: ColumnElement[Any]) -> ColumnElement[float]:
    """Return how long a session has waited at a moment; one that may start later does not wait until then."""
    since = func.greatest(Session.created_at, Session.starts_at, earlier)
    return func.greatest(cast(0, Double), cast(func.extract("epoch", at - since), Double))


def _told(value: datetime | float) -> BindParameter[Any]:
    """Return a value that stands in the statement itself.

    PostgreSQL plans a statement that comes again for any period at once, and then reads a year as it would an hour.
    """
    return bindparam(None, value, literal_execute=True)


async def held(db: AsyncSession, wanted: Wanted) -> ColumnElement[bool]:
    """Return the condition that a span held something in the period: as the index of ends has it, with none as well."""
    ended = or_(Span.ended_at.is_(None), Span.ended_at > _told(wanted.starts_at))
    return and_(Span.started_at < _told(wanted.ends_at), ended, await _within(db, _of(Span), wanted))


async def _begun(db: AsyncSession, wanted: Wanted) -> ColumnElement[bool]:
    in_period = and_(Span.started_at >= _told(wanted.starts_at), Span.started_at < _told(wanted.ends_at))
    return and_(in_period, Span.waited_s.is_not(None), await _within(db, _of(Span), wanted))


def _counted(begun: ColumnElement[bool], number: ColumnElement[int]) -> Select[*tuple[Any, ...]]:
    """Count waits of about one size, each at most 5 % longer than the one before, by the numbers of steps.

    There are few sizes, so that no million of waits has to be put in order.
    """
    size = cast(func.floor(func.ln(1 + Span.waited_s, type_=Double) / _told(log(1.05))), Integer).label("size")
    values = (size, func.count().label("count"), func.max(Span.waited_s).label("longest"))
    return select(number, *values).where(begun).group_by(number, size)


def _percentiles(counted: Subquery) -> Select[*tuple[Any, ...]]:
    """Return, by number, the waits that stand for half and for 95 % of all: the longest of those of their size."""
    of = counted.c.number
    until = func.sum(counted.c.count).over(partition_by=of, order_by=counted.c.size).label("until")
    total = func.sum(counted.c.count).over(partition_by=of).label("total")
    summed = select(of, counted.c.longest, until, total).subquery().c
    parts = [func.min(summed.longest).filter(summed.until >= cast(part, Double) * summed.total) for part in (0.5, 0.95)]
    return select(summed.number, func.max(summed.total), *parts, func.max(summed.longest)).group_by(summed.number)


def by_whose(by: By) -> Select[*tuple[Any, ...]]:
    """Return a query of spans by whose they are: an id, a name, and the id once more, as in `spans_within`."""
    return _by(Span, by, ()).select_from(Span)


def _by(table: type[Span | AccountingDay], by: By | None, sums: tuple[Any, ...]) -> Select[*tuple[Any, ...]]:
    if by is None:
        return select(null().label("id"), null().label("name"), null().label("there"), *sums)
    id_, name, there = _whose(table, by)
    return select(id_, name, there, *sums).outerjoin(there.class_, there == id_).group_by(id_, name, there)


def _whose(table: type[Span | AccountingDay], by: By) -> tuple[InstrumentedAttribute[Any], ...]:
    """Return the id and the name of whose something is, and the id of those that are there."""
    return {
        By.USER: (table.user_id, table.user_name, User.id),
        By.PROJECT: (table.project_id, table.project_name, Project.id),
        By.DOMAIN: (table.domain_id, table.domain, Domain.id),
    }[by]


Owners = tuple[InstrumentedAttribute[Any], InstrumentedAttribute[Any], InstrumentedAttribute[Any]]
"""Columns with the ids of domain, project and user."""


def _of(table: type[Span | AccountingDay]) -> Owners:
    return table.domain_id, table.project_id, table.user_id


async def _within(db: AsyncSession, owners: Owners, wanted: Wanted) -> ColumnElement[bool]:
    reach = wanted.reach
    if reach.everything:
        return true()
    domain, project, user = owners
    return or_(
        domain == await domain_id(db, reach.domain) if reach.domain else false(),
        project.in_(reach.projects),
        user == wanted.user_id if reach.own else false(),
    )
