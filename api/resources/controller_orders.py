"""Orders for the controller, of repairs and about backups: which it has taken, and calling back those that wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.database import ORDERS_LOCK, exclusively
from api.tables.backups import BackupOrder
from api.tables.repairs import RepairRun
from common.errors import ConflictError, NotFoundError, Problem
from common.sentence import Sentence

ORDERED, RUNNING, CANCELLED = "ordered", "running", "cancelled"
"""States of both kinds of orders: one that waits, one that the controller does, and one that was called back."""
MOST = 100
"""So many orders of a kind are listed."""
BEGINS = timedelta(seconds=30)
"""Within so long the controller says what it has begun; what it has not begun by then has not reached it."""
MOST_TAKEN = 10
"""An order that the controller has taken so often and not begun ends, so that others have their turn."""
_TAKEN, _TIMES = "taken_at", "taken_times"

Order = TypeVar("Order", RepairRun, BackupOrder)


async def latest(db: AsyncSession, kind: type[Order]) -> Sequence[Order]:
    """Return the last orders of a kind, the latest first."""
    return (await db.scalars(select(kind).order_by(kind.created_at.desc(), kind.id).limit(MOST))).all()


async def get(db: AsyncSession, kind: type[Order], identity: UUID, *, locked: bool = False) -> Order:
    """Return an order, locked until the transaction ends where that is said; raises NotFoundError."""
    found = await db.get(kind, identity, with_for_update=locked or None)
    if found is None:
        raise NotFoundError(f"there is no {kind.NOUN} {identity}", where=kind.NOUN, hint=f"list the {kind.NOUN}s")
    return found


async def waiting(db: AsyncSession, kind: type[Order]) -> Order | None:
    """Return the oldest order that the controller has not begun, locked until the transaction ends."""
    ordered = select(kind).where(kind.status == ORDERED).with_for_update()
    return (await db.scalars(ordered.order_by(kind.created_at, kind.id).limit(1))).one_or_none()


async def waiting_alone(db: AsyncSession, kind: type[Order]) -> Order | None:
    """Return the oldest order that waits; until the transaction ends no other one orders anything."""
    await exclusively(db, ORDERS_LOCK)
    return await waiting(db, kind)


async def hand_out(db: AsyncSession, kind: type[Order]) -> Order | None:
    """Return the order that the controller is to do next, and note that it takes it; None where none waits.

    It takes one again where the answer did not reach it the last time, but not for ever.
    """
    while order := await waiting(db, kind):
        times = order.record.get(_TIMES, 0) + 1
        if times <= MOST_TAKEN:
            order.record = {**order.record, _TAKEN: now().isoformat(), _TIMES: times}
            return order
        hint = "look at `journalctl -u penstock-controller` on the reservoir node, and order it again"
        reason = Problem("", f"the controller has taken it {MOST_TAKEN} times and not begun it", hint)
        order.status, order.reason, order.finished_at = kind.NOT_BEGUN, str(reason), now()
        await db.flush()
    return None


def is_settled(order: RepairRun | BackupOrder) -> bool:
    """Return whether the controller has told how an order ended.

    What was ended here may have begun all the same, and then it is what the controller tells.
    """
    return order.status not in (ORDERED, RUNNING, CANCELLED) and _TIMES not in order.record


async def cancel(db: AsyncSession, kind: type[Order], identity: UUID, user: str) -> Order:
    """Call back an order that waits; raises NotFoundError, and ConflictError for one that does not wait any more."""
    order = await get(db, kind, identity, locked=True)
    if order.status != ORDERED:
        raise ConflictError(
            Sentence("it is {status}", status=order.status),
            where=kind.NOUN,
            hint=Sentence("cancel only what waits for the controller"),
        )
    taken = order.record.get(_TAKEN)
    # one that was taken in the future was so by a clock that has been put back since
    if taken and abs(now() - datetime.fromisoformat(taken)) < BEGINS:
        raise ConflictError(
            Sentence("the controller has taken it"), where=kind.NOUN, hint=Sentence("look what becomes of it")
        )
    order.status, order.reason, order.finished_at = CANCELLED, f"cancelled by {user}", now()
    await db.flush()
    return order


def told(order: RepairRun | BackupOrder) -> dict[str, Any]:
    """Return what is told of every order."""
    return {
        "id": order.id,
        "by": order.user_name,
        "state": order.status,
        "reason": order.reason,
        "ordered_at": order.created_at,
        "finished_at": order.finished_at,
    }
