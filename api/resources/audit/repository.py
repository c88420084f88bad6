"""Queries of what is to go into the audit log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    Text,
    and_,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among, open_with
from api.resources.audit.chain import GENESIS, Head
from api.tables.audit import AuditChange, AuditEvent, AuditHead, AuditSent

_OPEN = """
    WITH noting AS (SELECT set_config('penstock.audit', 'on', true))
    INSERT INTO audit_events (id, at, transaction, entry)
    SELECT $1, now(), pg_current_xact_id()::text::bigint, $2::jsonb FROM noting
"""
_TRANSACTION: ColumnElement[int] = literal_column("pg_current_xact_id()::text::bigint")

IS_UNWRITTEN = AuditEvent.number.is_not(None)
"""Whether something is not in the files yet."""


_SENT = func.coalesce(select(AuditSent.seq).scalar_subquery(), 0)


@dataclass(frozen=True)
class Pending:
    """An entry that is not in the files yet, with what the database changed, and where both stand."""

    number: int
    transaction: int | None
    id: str
    entry: dict[str, Any]
    changes: list[dict[str, Any]]


def is_unsent(*, wanted: bool) -> ColumnElement[bool]:
    """Return whether a syslog server that is `wanted` has not got all of the files."""
    return and_(literal(wanted), AuditHead.seq > _SENT)


async def begin(db: AsyncSession, entry: Mapping[str, Any]) -> None:
    """Open a transaction with an entry, and let the database note what it changes from then on."""
    await open_with(db, _OPEN, [uuid4().hex, json.dumps(entry)])


async def add(db: AsyncSession, entry: Mapping[str, Any], at: datetime, *, changes: bool) -> None:
    """Add an entry; with `changes` it tells what this transaction has changed."""
    values = {"id": uuid4().hex, "at": at, "entry": dict(entry), "transaction": _TRANSACTION if changes else None}
    await db.execute(insert(AuditEvent).values(values))


async def set_status(db: AsyncSession, status: int) -> None:
    """Let the entry that this transaction began with say another status."""
    entry = func.jsonb_set(AuditEvent.entry, literal(["status"], ARRAY(Text)), func.to_jsonb(literal(status, Integer)))
    await db.execute(update(AuditEvent).where(AuditEvent.transaction == _TRANSACTION).values(entry=entry))


async def pending(db: AsyncSession, limit: int, changes: int) -> list[Pending]:
    """Return the oldest entries that are not in the files, each with so many of its changes at most."""
    events = (await db.scalars(select(AuditEvent).order_by(AuditEvent.number).limit(limit))).all()
    rank = func.row_number().over(partition_by=AuditChange.transaction, order_by=AuditChange.number).label("rank")
    of_these = among(AuditChange.transaction, [event.transaction for event in events if event.transaction])
    ranked = select(AuditChange, rank).where(of_these).subquery()
    columns = (ranked.c.transaction, ranked.c.kind, ranked.c.subject, ranked.c.before, ranked.c.after)
    rows = (await db.execute(select(*columns).where(ranked.c.rank <= changes + 1).order_by(ranked.c.number))).all()
    found: dict[int, list[dict[str, Any]]] = {}
    for transaction, kind, subject, before, after in rows:
        change = {"kind": kind, "subject": subject, "before": before, "after": after}
        found.setdefault(transaction, []).append(change)
    return [
        Pending(event.number, event.transaction, event.id, event.entry, found.get(event.transaction or 0, []))
        for event in events
    ]


async def written(db: AsyncSession, done: Sequence[Pending], head: Head, at: datetime) -> None:
    """Take away what is in the files now, and note how far these go."""
    transactions = [one.transaction for one in done if one.transaction is not None]
    await db.execute(delete(AuditChange).where(among(AuditChange.transaction, transactions)))
    await db.execute(delete(AuditEvent).where(among(AuditEvent.number, [one.number for one in done])))
    values = {"seq": head.seq, "mac": head.mac, "at": at}
    query = upsert(AuditHead).values(id=1, **values)
    await db.execute(query.on_conflict_do_update(index_elements=[AuditHead.id], set_=values))


async def head(db: AsyncSession) -> Head:
    """Return how far the files went when they were written last."""
    row = (await db.execute(select(AuditHead.seq, AuditHead.mac))).one_or_none()
    return Head(row.seq, row.mac) if row else GENESIS


async def note_fault(db: AsyncSession, fault: str, at: datetime) -> None:
    """Note what of the log is not as it was written: somebody has to know, whether or not it can still be seen."""
    await db.execute(update(AuditHead).values(fault=fault, fault_at=at))


async def fault(db: AsyncSession) -> tuple[str, datetime | None]:
    """Return what was found last that is not as it was written, and when."""
    row = (await db.execute(select(AuditHead.fault, AuditHead.fault_at))).one_or_none()
    return (row.fault, row.fault_at) if row else ("", None)


async def sent(db: AsyncSession) -> AuditSent:
    """Return how far a syslog server has the log."""
    return (await db.scalars(select(AuditSent))).one_or_none() or AuditSent(seq=0, reason="")


async def note_sent(db: AsyncSession, seq: int, reason: str, behind_since: datetime | None) -> None:
    """Note how far a syslog server has the log, and why it has not more of it."""
    values = {"seq": seq, "reason": reason, "behind_since": behind_since}
    query = upsert(AuditSent).values(id=1, **values)
    await db.execute(query.on_conflict_do_update(index_elements=[AuditSent.id], set_=values))
