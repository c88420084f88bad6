"""Files of accounting: what its page shows, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from fastapi import Response

from api.auth.policy import Action
from api.clock import now
from api.console.accounting import Days, gpus
from api.console.routes import Router
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading
from api.resources.accounting import service
from api.resources.accounting.costs import Prices
from api.resources.accounting.schemas import AccountingRow, By, WaitFigures

HOUR_S = 3600
WAITED = ("starts", "median_s", "p95_s", "longest_s")

router = Router(prefix="/accounting")


@router.get("/csv")
@action(Action.ACCOUNTING_READ)
async def download_accounting(
    *, caller: Caller, db: Reading, settings: SettingsOf, days: Days = 30, by: By = By.PROJECT
) -> Response:
    """Download what was held, and what it costs, by whose it is."""
    report = await service.report(db, caller, *_last(days), by, prices=Prices.of(settings))
    period = _second(report.starts_at), _second(report.ends_at)
    amounts = ("sessions", "hours", "gpu_hours", "covered_gpu_hours", "busy_gpu_hours", "cost", "currency")
    rows = [(row.name, row.deleted, *period, *_amounts(row), row.cost, report.currency) for row in report.rows]
    return _file(by.value, (by.value, "deleted", "from", "until", *amounts), rows)


@router.get("/timeline/csv")
@action(Action.ACCOUNTING_READ)
async def download_timeline(*, caller: Caller, db: Reading, days: Days = 30, by: By = By.PROJECT) -> Response:
    """Download the GPUs held over time, by whose they were."""
    found = await service.timeline(db, caller, *_last(days), by, points=service.POINTS)
    rows = [
        (series.name, series.deleted, _step(found.starts_at, found.step_s, number), found.step_s, milli / 1000)
        for series in found.series
        for number, milli in enumerate(series.gpu_milli)
    ]
    return _file(f"timeline-{by.value}", (by.value, "deleted", "from", "step_s", "gpus"), rows)


@router.get("/waits/csv")
@action(Action.ACCOUNTING_READ)
async def download_waits(*, caller: Caller, db: Reading, days: Days = 30, by: By = By.PROJECT) -> Response:
    """Download how long sessions waited, by whose they were: for the whole period, and of all together over time."""
    found = await service.waits(db, caller, *_last(days), by, points=service.WAIT_POINTS)
    start, lasts = found.starts_at, round((found.ends_at - found.starts_at).total_seconds())
    rows: list[Sequence[Any]] = [
        (row.name, row.deleted, _second(start), lasts, *_waited(row), row.waiting, row.oldest_s) for row in found.rows
    ]
    # of a moment that is over nobody knows any more how many waited
    rows += [
        ("*", False, _step(start, found.step_s, number), found.step_s, *_waited(step), None, None)
        for number, step in enumerate(found.steps)
    ]
    head = (by.value, "deleted", "from", "step_s", *WAITED, "waiting_now", "oldest_wait_now_s")
    return _file(f"waits-{by.value}", head, rows)


@router.get("/utilization/csv")
@action(Action.SCHEDULER_READ)
async def download_utilization(*, caller: Caller, db: Reading, days: Days = 30) -> Response:
    """Download what the site's GPUs did over time."""
    found = await service.utilization(db, caller, *_last(days), points=service.POINTS)
    rows = [
        (
            _step(found.starts_at, found.step_s, number),
            round(step.seconds),
            *map(gpus, (step.gpu_milli, step.held_milli, step.covered_milli)),
            gpus(step.busy_milli) if step.covered_milli else None,
        )
        for number, step in enumerate(found.steps)
    ]
    return _file("utilization", ("from", "step_s", "gpus", "held_gpus", "covered_gpus", "busy_gpus"), rows)


def _last(days: int) -> tuple[datetime, datetime]:
    end = now()
    return end - timedelta(days=days), end


def _file(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Response:
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(head)
    writer.writerows(rows)
    headers = {
        "Content-Disposition": f'attachment; filename="accounting-{name}-{now():%Y%m%d}.csv"',
        "X-Content-Type-Options": "nosniff",
    }
    return Response(file.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _amounts(row: AccountingRow) -> tuple[float, ...]:
    seconds = (row.session_seconds, row.gpu_seconds, row.covered_gpu_seconds, row.busy_gpu_seconds)
    return row.sessions, *(round(each / HOUR_S, 3) for each in seconds)


def _waited(figures: WaitFigures) -> tuple[float | None, ...]:
    return figures.count, figures.median_s, figures.p95_s, figures.longest_s


def _step(start: datetime, step_s: int, number: int) -> str:
    return _second(start + timedelta(seconds=number * step_s))


def _second(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
