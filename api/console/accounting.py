"""Accounting as a page: who held how much over time and in all, and what the site's GPUs did."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.console import pages
from api.console.routes import Router
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading
from api.resources.accounting import service
from api.resources.accounting.costs import Prices
from api.resources.accounting.schemas import By, TimelineView, WaitsView

DAYS = (1, 7, 30, 90, 365)
"""The periods that can be looked at; they end now."""
LINES = 8
"""So many of those who held most have a line in the plot."""
MINUTE_S = 60

router = Router(prefix="/accounting")
Days = Annotated[int, Query(ge=1, le=DAYS[-1])]


@router.get("")
@action(Action.ACCOUNTING_READ)
async def show_accounting(
    *, request: Request, caller: Caller, db: Reading, settings: SettingsOf, days: Days = 30, by: By = By.PROJECT
) -> HTMLResponse:
    """Show what was held in the last days."""
    end = now()
    start = end - timedelta(days=days)
    report = await service.report(db, caller, start, end, by, prices=Prices.of(settings))
    timeline = await service.timeline(db, caller, start, end, by, points=service.POINTS)
    waits = await service.waits(db, caller, start, end, by, points=service.WAIT_POINTS)
    values = {
        "waits": waits,
        "waits_plot": _waits_plot(waits),
        "days": days,
        "by": by,
        "kinds": By,
        "choices": DAYS,
        "report": report,
        "plot": _plot(timeline),
        "step_s": timeline.step_s,
        "most": max(
            (sum(values) for values in zip(*(one.gpu_milli for one in timeline.series), strict=True)), default=0
        ),
        "query": urlencode({"days": days, "by": by.value}),
        **await _of_site(db, caller, start, end),
    }
    return pages.page(request, "accounting.html", values)


async def _of_site(db: Reading, caller: Identity, start: datetime, end: datetime) -> dict[str, Any]:
    """Return what the page shows of all the site's GPUs, which is nothing to who may not see that."""
    if not caller.may(Action.SCHEDULER_READ):
        return {"site": None}
    found = await service.utilization(db, caller, start, end, points=service.POINTS)
    first = int(found.starts_at.timestamp())
    moments = [first + number * found.step_s for number in range(len(found.steps))]
    lines = (
        [gpus(step.gpu_milli) for step in found.steps],
        [gpus(step.held_milli) for step in found.steps],
        [gpus(step.busy_milli if step.covered_milli else None) for step in found.steps],
    )
    sums = {
        name: sum(getattr(step, name) * step.seconds for step in found.steps)
        for name in ("held_milli", "covered_milli", "busy_milli")
    }
    return {"site": found, "site_plot": json.dumps([moments, *lines]), "site_sums": sums}


def gpus(milli: int | None) -> float | None:
    """Return milli-GPU as GPUs, None of none."""
    return None if milli is None else milli / 1000


def _plot(timeline: TimelineView) -> dict[str, Any]:
    """Return what the plot takes: the steps, and the GPUs of those who held most."""
    lines = sorted(timeline.series, key=lambda one: -sum(one.gpu_milli))[:LINES]
    count = max((len(one.gpu_milli) for one in lines), default=0)
    start = int(timeline.starts_at.timestamp())
    steps = [start + number * timeline.step_s for number in range(count)]
    return {
        "data": json.dumps([steps, *([milli / 1000 for milli in one.gpu_milli] for one in lines)]),
        "labels": json.dumps([one.name or "–" for one in lines]),
        "count": count,
    }


def _waits_plot(waits: WaitsView) -> str:
    """Return the minutes that half and 95 % waited at most, of each step; of one in which nothing began, null."""
    start = int(waits.starts_at.timestamp())
    moments = [start + number * waits.step_s for number in range(len(waits.steps))]
    return json.dumps([moments, *([_minutes(value) for value in line] for line in _lines(waits))])


def _lines(waits: WaitsView) -> tuple[list[float | None], list[float | None]]:
    return [step.median_s for step in waits.steps], [step.p95_s for step in waits.steps]


def _minutes(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds / MINUTE_S, 2)
