"""Orders for the controller, of repairs and about backups: which it has taken, and calling back those that wait."""

from __future__ import annotations

from datetime import datetime, timedelta

from api.clock import now
from api.tables.backups import BackupOrder
from api.tables.repairs import RepairRun
from common.errors import ConflictError

ORDERED, CANCELLED = "ordered", "cancelled"
"""States of both kinds of orders: one that waits, and one that was called back."""
BEGINS = timedelta(seconds=30)
"""Within so long the controller says what it has begun; what it has not begun by then has not reached it."""
MOST_TAKEN = 10
"""An order that the controller has taken so often is none that it begins."""
_TAKEN, _TIMES = "taken_at", "taken_times"


def hand_out(order: RepairRun | BackupOrder) -> None:
    """Note that the controller takes an order: again, where the answer did not reach it the last time."""
    times = order.record.get(_TIMES, 0) + 1
    if times <= MOST_TAKEN:
        order.record = {**order.record, _TAKEN: now().isoformat(), _TIMES: times}


def call_back(order: RepairRun | BackupOrder, user: str, where: str) -> None:
    """Cancel an order; raises ConflictError where it does not wait for the controller any more."""
    if order.status != ORDERED:
        raise ConflictError(f"it is {order.status}", where=where, hint="cancel only what waits for the controller")
    taken = order.record.get(_TAKEN)
    if taken and now() - datetime.fromisoformat(taken) < BEGINS:
        raise ConflictError("the controller has taken it", where=where, hint="look what becomes of it")
    order.status, order.reason, order.finished_at = CANCELLED, f"cancelled by {user}", now()
