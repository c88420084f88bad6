"""Rules of denied calls: whose word is taken, how many series are kept and for how long."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.resources.denied_calls import repository
from api.resources.denied_calls.schemas import DeniedCallsView, DeniedCallView
from api.resources.metrics import service as metrics
from api.tables.denied_calls import DeniedSeries
from api.tables.sessions import Session
from common.denied_call_protocol import DeniedCall, DeniedCallReport

MAX_SERIES = 2000
"""Series of one session; calls beyond them are counted and not described."""
SHOWN = 500
"""Series of one answer."""


async def record(db: AsyncSession, report: DeniedCallReport, keep_s: float) -> None:
    """Write what sandboxes of a node denied; what was told before counts once.

    What is told of containers that no session has on that node is left out, and so is what is of a time that is not
    kept, or of none.
    """
    places = await metrics.places_of(db, report.name, [denied.session_id for denied in report.denied_calls])
    moment = now()
    kept = moment - timedelta(seconds=keep_s), moment + metrics.EARLY
    taken = [
        (*place, denied)
        for denied in report.denied_calls
        if (place := places.get(denied.container_id)) and kept[0] <= _aware(denied.first_at) <= _aware(denied.last_at)
        if _aware(denied.last_at) < kept[1]
    ]
    if not taken:
        return
    sessions = {session_id for session_id, _, _ in taken}
    since = min(_aware(denied.first_at) for _, _, denied in taken)
    known = {_key_of(row): row for row in await repository.of_sessions(db, sessions, since)}
    sizes = await repository.sizes(db, sessions)
    more: Counter[UUID] = Counter()
    for session_id, rank, denied in taken:
        row = known.get(_key(session_id, rank, denied))
        if row is None and sizes.get(session_id, 0) < MAX_SERIES:
            row = known[_key(session_id, rank, denied)] = _row(session_id, rank, denied)
            repository.add(db, row)
            sizes[session_id] = sizes.get(session_id, 0) + 1
        if row is not None and denied.count > row.count:
            more[session_id] += denied.count - row.count
            row.count, row.last_at, row.pid = denied.count, _aware(denied.last_at), denied.pid
    # in one order, so that two agents that tell of one session do not wait for each other
    for session_id in sorted(more):
        await repository.count(db, session_id, more[session_id])


async def show(db: AsyncSession, session: Session, caller: Identity) -> DeniedCallsView:
    """Return what the sandbox of a session denied; raises ForbiddenError for who may see no more than their number."""
    caller.check(Action.DENIED_CALL_READ, project=session.project)
    series = [DeniedCallView.model_validate(row) for row in await repository.newest(db, session.id, SHOWN)]
    return DeniedCallsView(session_id=session.id, sandbox=session.sandbox, denied=session.denied, series=series)


async def forget(db: AsyncSession, at: datetime, keep_s: float) -> int:
    """Delete the series that are older than they are kept; returns how many."""
    return await repository.forget(db, at - timedelta(seconds=keep_s))


_Key = tuple[UUID, int, str, str, str, datetime]


def _key(session_id: UUID, rank: int, denied: DeniedCall) -> _Key:
    return session_id, rank, denied.call, denied.process, denied.effect, _aware(denied.first_at)


def _key_of(row: DeniedSeries) -> _Key:
    return row.session_id, row.rank, row.call, row.process, row.effect, row.first_at


def _row(session_id: UUID, rank: int, denied: DeniedCall) -> DeniedSeries:
    return DeniedSeries(
        session_id=session_id,
        rank=rank,
        call=denied.call,
        process=denied.process,
        effect=denied.effect,
        first_at=_aware(denied.first_at),
        last_at=_aware(denied.last_at),
        pid=denied.pid,
        count=0,
    )


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
