"""Repairs of known issues: ordered with a look first, and what became of every run, step by step while it runs."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Form, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router
from api.endpoints import auditing, repairs
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.repairs import REPAIR, WorkersOf
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.repairs import service
from api.resources.repairs.schemas import RepairRequest
from api.tables.nodes import Node
from api.tables.repairs import RepairRun
from common.repairs import OPEN

router = Router(prefix="/repairs")
Word = Annotated[str, Field(max_length=64, pattern=r"^[0-9A-Za-z-]*$"), REPAIR]


class OrderForm(BaseModel):
    """How to run a repair: as a mere look unless that is said; without a node on all that have the symptom."""

    repair: Word
    node: Annotated[str, Field(max_length=64)] = ""
    dry_run: bool = True
    agreed: bool = False


@router.get("")
@action(Action.REPAIR_READ)
async def list_repairs(
    *,
    request: Request,
    caller: Caller,
    db: Reading,
    settings: SettingsOf,
    repair: Annotated[str, Query(max_length=64)] = "",
    node: Annotated[str, Query(max_length=63)] = "",
) -> Response:
    """Show the last runs, and the repairs that there are."""
    about = await service.controller(db, taken=settings.controller)
    stamp = await pages.stamp(request, db, (*stamps.PEOPLE, RepairRun, Node), caller.id, request.url, about)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {
        "runs": await service.runs(db),
        "repairs": service.every(),
        "chosen": repair,
        "node": node,
        "taken": settings.controller,
        "controller": about,
    }
    return await pages.live(request, "repairs.html", "repairs_live.html", values, stamp=stamp)


async def _order(form: Annotated[OrderForm, Form()], connection: HTTPConnection) -> OrderForm:
    auditing.about(connection, f"repairs/{form.repair}/runs")
    return form


@router.post("", status_code=204)
@action(Action.REPAIR_RUN)
async def order_repair(
    *,
    form: Annotated[OrderForm, Depends(_order)],
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    workers: WorkersOf,
    response: Response,
) -> None:
    """Order a run, and show it."""
    body = {"limit": form.node or None, "dry_run": form.dry_run, "agreed": form.agreed}
    request = forms.checked(RepairRequest, body)
    made = await repairs.order_repair(
        repair=form.repair, request=request, caller=caller, db=db, settings=settings, workers=workers
    )
    response.headers["HX-Redirect"] = f"/repairs/runs/{made.id}"


@router.get("/runs/{run_id}")
@action(Action.REPAIR_READ)
async def show_repair_run(run_id: UUID, request: Request, db: Reading, settings: SettingsOf) -> Response:
    """Show one run with its steps so far."""
    run = await service.show(db, run_id)
    values = {"run": run, "controller": await service.controller(db, taken=settings.controller)}
    every_s = 3 if run.state in OPEN else 60
    return await pages.live(request, "repair_run.html", "repair_run_live.html", values, every_s=every_s)


_cancelled = Depends(auditing.told_as("repair-runs/{run_id}/cancel"))


@router.post("/runs/{run_id}/cancel", status_code=204, dependencies=[REFRESH, _cancelled])
@action(Action.REPAIR_RUN)
async def cancel_repair_run(run_id: UUID, caller: Caller, db: Transaction) -> None:
    """Call back a run that waits."""
    await repairs.cancel_repair(run_id, caller, db)
