"""Accounting, and who sees it: all for administrators, a project for its managers, one's own for everybody."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Query

from api.auth.policy import Action
from api.clock import now
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading
from api.resources.accounting import service
from api.resources.accounting.costs import Prices
from api.resources.accounting.schemas import AccountingView, By, TimelineView, UtilizationView, WaitsView
from api.resources.schemas import Moment

router = Router(prefix="/accounting", tags=["accounting"])

DEFAULT = timedelta(days=30)


@router.get("")
@action(Action.ACCOUNTING_READ)
async def report_accounting(
    *,
    caller: Caller,
    db: Reading,
    settings: SettingsOf,
    starts_at: Moment | None = None,
    ends_at: Moment | None = None,
    by: By = By.USER,
) -> AccountingView:
    """Report what ran in a period, by default the last 30 days: the GPUs it held, how busy they were, what it costs."""
    end = ends_at or now()
    return await service.report(db, caller, starts_at or end - DEFAULT, end, by, prices=Prices.of(settings))


@router.get("/timeline")
@action(Action.ACCOUNTING_READ)
async def report_timeline(
    *,
    caller: Caller,
    db: Reading,
    starts_at: Moment | None = None,
    ends_at: Moment | None = None,
    by: By = By.PROJECT,
    points: Annotated[int, Query(ge=1, le=service.MAX_POINTS)] = service.POINTS,
) -> TimelineView:
    """Report what was held of GPUs over time, by default in the last 30 days, in at most so many `points`."""
    end = ends_at or now()
    return await service.timeline(db, caller, starts_at or end - DEFAULT, end, by, points=points)


@router.get("/waits")
@action(Action.ACCOUNTING_READ)
async def report_waits(
    *,
    caller: Caller,
    db: Reading,
    starts_at: Moment | None = None,
    ends_at: Moment | None = None,
    by: By = By.PROJECT,
    points: Annotated[int, Query(ge=1, le=service.MAX_POINTS)] = service.WAIT_POINTS,
) -> WaitsView:
    """Report how long sessions waited before they ran, by default in the last 30 days, and how long some wait now."""
    end = ends_at or now()
    return await service.waits(db, caller, starts_at or end - DEFAULT, end, by, points=points)


@router.get("/utilization")
@action(Action.SCHEDULER_READ)
async def report_utilization(
    *,
    caller: Caller,
    db: Reading,
    starts_at: Moment | None = None,
    ends_at: Moment | None = None,
    points: Annotated[int, Query(ge=1, le=service.MAX_POINTS)] = service.POINTS,
) -> UtilizationView:
    """Report of the site's GPUs how many there were, were held and were busy, by default in the last 30 days.

    There are at most so many `points`, of whole hours.
    """
    end = ends_at or now()
    return await service.utilization(db, caller, starts_at or end - DEFAULT, end, points=points)
