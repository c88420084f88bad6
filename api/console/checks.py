"""Checks of the nodes and of the site: what is not well and why, what people say of it, and what has changed."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import Form, Query, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action
from api.clock import now
from api.console import forms, pages
from api.console.routes import REFRESH, Router
from api.control.manager import WakeAfterwards
from api.endpoints import health
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.health import service
from api.resources.health.schemas import AcknowledgementRequest
from api.resources.schemas import NODE_NAME
from common.checks import CheckState

SHOWN, CHANGES = 200, 50
"""So many checks are shown, and so many changes."""
WORST = (CheckState.FAIL, CheckState.UNKNOWN, CheckState.WARN, CheckState.OK)
"""States of checks in the order in which they are shown."""
NOT_WELL = WORST[:-1]

router = Router(prefix="/health/checks")


class AcknowledgementForm(BaseModel):
    """For how long nobody is told of a check, and why."""

    hours: Annotated[int, Field(ge=1, le=2160)]
    comment: Annotated[str, Field(max_length=1000)] = ""


@router.get("")
@action(Action.HEALTH_READ)
async def list_checks(
    *,
    request: Request,
    caller: Caller,
    db: Reading,
    settings: SettingsOf,
    state: Annotated[CheckState | None, Query()] = None,
    node: Annotated[str, Query(max_length=63, pattern=r"^[A-Za-z0-9._-]*$"), NODE_NAME] = "",
) -> Response:
    """Show the checks that are not well, or those in a state, the worst first; those of a node where it is named."""
    states = (state,) if state else NOT_WELL
    count, mark = await service.mark(db, node or None, states)
    stamp = await pages.stamp(request, db, stamps.PEOPLE, caller.id, request.url, mark)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {
        "checks": await service.worst(db, settings, node or None, states, SHOWN),
        "more": max(0, count - SHOWN),
        "changes": await service.changes(db, node or None, None, None, CHANGES),
        "states": WORST,
        "state": state,
        "node": node,
        "may_change": caller.allows(Action.HEALTH_CHANGE),
        "now": now(),
    }
    return await pages.live(request, "checks.html", "checks_live.html", values, stamp=stamp)


@router.get("/{check_id}")
@action(Action.HEALTH_READ)
async def show_check(
    *, check_id: UUID, request: Request, caller: Caller, db: Reading, settings: SettingsOf
) -> Response:
    """Show one check and how it has changed; who looks after it says for how long nobody is told of it, and why."""
    check = await service.one(db, settings, check_id)
    changes = await service.changes(db, check.node, check.check, None, CHANGES)
    values = {
        "check": check,
        "checks": [check],
        "more": 0,
        "changes": [change for change in changes if change.thing == check.thing],
        "state": check.state,
        "may_change": caller.allows(Action.HEALTH_CHANGE),
        "now": now(),
    }
    return await pages.live(request, "check.html", "checks_live.html", values)


@router.post("/{check_id}/acknowledgement", status_code=204, dependencies=[REFRESH])
@action(Action.HEALTH_CHANGE)
async def acknowledge_check(
    *,
    check_id: UUID,
    form: Annotated[AcknowledgementForm, Form()],
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
) -> None:
    """Tell nobody of a check for some hours."""
    body = {"until": now() + timedelta(hours=form.hours), "comment": form.comment}
    await health.acknowledge_check(check_id, forms.checked(AcknowledgementRequest, body), caller, db, settings)


@router.post("/{check_id}/acknowledgement/end", status_code=204, dependencies=[REFRESH])
@action(Action.HEALTH_CHANGE)
async def end_check_acknowledgement(check_id: UUID, db: Transaction, settings: SettingsOf) -> None:
    """Tell of a check again."""
    await health.end_check_acknowledgement(check_id, db, settings)


@router.post("/{check_id}/clear", status_code=204, dependencies=[REFRESH])
@action(Action.HEALTH_CHANGE)
async def clear_check(
    *,
    check_id: UUID,
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    wake: WakeAfterwards,
) -> None:
    """Let a check count as well until what it tells of occurs anew."""
    await health.clear_check(check_id, caller, db, settings, wake)
