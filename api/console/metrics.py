"""Plots of what a session used of its GPUs, which stay up to date, with the same in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query, Request, Response

from api.auth.policy import Action
from api.clock import now
from api.console import pages
from api.console.routes import Router
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading
from api.resources.metrics import service as metrics
from api.resources.metrics.schemas import MetricsSeries
from api.resources.schemas import NamePath, NameQuery
from api.resources.sessions import service

HOURS = (1, 6, 24, 168)
"""The times that can be looked at."""

router = Router(prefix="/sessions/{name}/metrics")


@router.get("")
@action(Action.SESSION_READ)
async def show_metrics(
    *,
    request: Request,
    name: NamePath,
    project: NameQuery,
    hours: Annotated[int, Query(ge=1, le=HOURS[-1])] = HOURS[0],
    caller: Caller,
    db: Reading,
) -> Response:
    """Show memory and use of each GPU of a session in its last hours."""
    session = await service.get(db, project, name, caller)
    # of whole steps: what is asked for a second later is the same where nothing has come meanwhile
    end = session.finished_at or now()
    until = end.replace(second=end.second // metrics.STEP_S * metrics.STEP_S, microsecond=0)
    found = await metrics.show(db, session, until - timedelta(hours=hours), until)
    values = {
        "session": session,
        "hours": hours,
        "choices": HOURS,
        "series": [_shown(series) for series in found.series],
    }
    return await pages.live(request, "metrics.html", "metrics_live.html", values, name="metrics", every_s=15)


def _shown(series: MetricsSeries) -> dict[str, Any]:
    """Return a series as its plot takes it, and in words: memory in MiB, use in percent."""
    memory = [point.memory_mib for point in series.points]
    busy = [None if point.busy_permille is None else point.busy_permille / 10 for point in series.points]
    known = [each for each in busy if each is not None]
    return {
        "rank": series.rank,
        "uuid": series.uuid,
        "data": json.dumps([[int(point.at.timestamp()) for point in series.points], memory, busy]),
        "memory": _last_and_most(memory),
        "busy": (round(known[-1]), round(sum(known) / len(known))) if known else None,
    }


def _last_and_most(values: Sequence[int]) -> tuple[int, int]:
    return values[-1], max(values)
