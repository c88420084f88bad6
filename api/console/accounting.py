"""Accounting as a page: who held how much over time and in all, and the same as CSV."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse

from api.auth.policy import Action
from api.clock import now
from api.console import pages
from api.console.routes import Router
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading
from api.resources.accounting import service
from api.resources.accounting.schemas import AccountingRow, AccountingView, By, TimelineView, WaitsView

DAYS = (1, 7, 30, 90, 365)
"""The periods that can be looked at; they end now."""
LINES = 8
"""So many of those who held most have a line in the plot."""
HOUR_S = 3600
MINUTE_S = 60

router = Router(prefix="/accounting")
Days = Annotated[int, Query(ge=1, le=DAYS[-1])]


@router.get("")
@action(Action.ACCOUNTING_READ)
async def show_accounting(
    *, request: Request, caller: Caller, db: Reading, days: Days = 30, by: By = By.PROJECT
) -> HTMLResponse:
    """Show what was held in the last days."""
    end = now()
    start = end - timedelta(days=days)
    report = await service.report(db, caller, start, end, by)
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
        "file": f"/accounting/csv?{urlencode({'days': days, 'by': by.value})}",
    }
    return pages.page(request, "accounting.html", values)


@router.get("/csv")
@action(Action.ACCOUNTING_READ)
async def download_accounting(*, caller: Caller, db: Reading, days: Days = 30, by: By = By.PROJECT) -> Response:
    """Download the table as CSV."""
    end = now()
    report = await service.report(db, caller, end - timedelta(days=days), end, by)
    name = f"accounting-{by.value}-{end:%Y%m%d}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return Response(_csv(report), media_type="text/csv; charset=utf-8", headers=headers)


def _csv(report: AccountingView) -> str:
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow((report.by.value, "deleted", "from", "until", "sessions", "hours", "gpu_hours"))
    period = _second(report.starts_at), _second(report.ends_at)
    writer.writerows((row.name, row.deleted, *period, *_amounts(row)) for row in report.rows)
    return file.getvalue()


def _amounts(row: AccountingRow) -> tuple[int, float, float]:
    return row.sessions, round(row.session_seconds / HOUR_S, 3), round(row.gpu_seconds / HOUR_S, 3)


def _second(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


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
