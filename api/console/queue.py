"""The queue: who waits, in which order and why; to those who look after the site also what was decided last."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from api.auth.policy import Action
from api.console import pages
from api.console.routes import Router
from api.control.cycles import DecidedCycle
from api.control.loop import Loop
from api.control.project_states import SECOND
from api.endpoints.access import Caller, action
from api.endpoints.scheduler import loop_of
from api.endpoints.transactions import Reading
from api.lists import queue, stamps
from api.tables.sessions import Session

SHOWN = 200
"""So many of those who wait are shown, and so many lines of what was decided."""

router = Router(prefix="/queue")


@router.get("")
@action(Action.SESSION_READ)
async def show_queue(
    *, request: Request, caller: Caller, db: Reading, loop: Annotated[Loop, Depends(loop_of)]
) -> Response:
    """Show who waits of those whom the caller sees, and where that is all, the last cycle if this process schedules."""
    whole = caller.allows(Action.SCHEDULER_READ)
    last = loop.last if whole else None
    stamp = await pages.stamp(request, db, (*stamps.PEOPLE, Session), caller.id, last.snapshot.now if last else 0)
    if answer := pages.unchanged(request, stamp):
        return answer
    waiting, more = await queue.page(db, caller, limit=SHOWN)
    values = {
        "waiting": waiting,
        "more": more,
        "others": await queue.others(db, caller),
        "whole": whole,
        "cycle": _told(last) if last else None,
    }
    return await pages.live(request, "queue.html", "queue_live.html", values, stamp=stamp)


def _told(cycle: DecidedCycle) -> dict[str, Any]:
    """Return what people are told of a cycle."""
    snapshot, decision = cycle.snapshot, cycle.decision
    return {
        "at": datetime.fromtimestamp(snapshot.now / SECOND, UTC),
        "nodes": len(snapshot.nodes),
        "open": sum(node.open for node in snapshot.nodes),
        "running": len(snapshot.running),
        "queue": len(snapshot.queue),
        "placed": len(decision.placements),
        "reclaimed": len(decision.reclaims),
        "kept": len(decision.reservations),
        "lines": decision.log[:SHOWN],
        "left_out": max(0, len(decision.log) - SHOWN),
    }
