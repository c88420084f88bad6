"""Queries of what is to go into the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, delete, func, insert, literal_column, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import among
from api.resources.audit.chain import GENESIS, Head
from api.tables.audit import AuditChange, AuditEvent, AuditHead

_ON = text("SET LOCAL penstock.audit = 'on'")
_TRANSACTION: ColumnElement[int] = literal_column("pg_current_xact_id()::text::bigint")

IS_UNWRITTEN = AuditEvent.number.is_not(None)
"""Whether something is not in the files yet."""


@dataclass(frozen=True)
class Pending:
    """An entry that is not in the files yet, with what the database changed, and where both stand."""

    number: int
    transaction: int | None
    id: str
    entry: dict[str, Any]
    changes: list[dict[str, Any]]


async def begin(db: AsyncSession) -> None:
    """Let the database note what this transaction changes."""
    await db.execute(_ON)


async def add(db: AsyncSession, entry: Mapping[str, Any], at: datetime, *, changes: bool) -> None:
    """Add an entry; with `changes` it tells what this transaction has changed."""
    values = {"id": uuid4().hex, "at": at, "entry": dict(entry), "transaction": _TRANSACTION if changes else None}
    await db.execute(insert(AuditEvent).values(values))


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
