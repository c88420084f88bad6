"""Endpoints of repairs: administrators of the site order them, and the controller takes the orders."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.auth.workers import Workers
from api.endpoints.access import Caller, SettingsOf, action, for_controller
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.audit import service as audit
from api.resources.backups import service as backups
from api.resources.health import service as health
from api.resources.repairs import service
from api.resources.repairs.schemas import (
    ControllerView,
    RepairRequest,
    RepairRunDetailView,
    RepairRunView,
    RepairView,
)
from common.hints import hinted
from common.repair_protocol import CONTROLLER_PATH, ControllerReply, ControllerReport
from common.sentence import Sentence

router = Router(tags=["repairs"])
controller = Router(tags=["agents"])

REPAIR = hinted(Sentence("write it as the list of repairs does"), Sentence("is no repair"))
RepairPath = Annotated[str, Path(max_length=16, pattern=r"^[0-9A-Za-z-]+$"), REPAIR]


async def workers_of(connection: HTTPConnection) -> Collection[str]:
    """Return the names of the site's list of workers."""
    workers: Workers = connection.app.state.workers
    return workers.names()


WorkersOf = Annotated[Collection[str], Depends(workers_of)]


@router.get("/controller")
@action(Action.REPAIR_READ)
async def get_controller(db: Reading, settings: SettingsOf) -> ControllerView:
    """Say whether the controller of the site takes orders, and when it was last heard of."""
    return await service.controller(db, taken=settings.controller)


@router.get("/repairs")
@action(Action.REPAIR_READ)
async def list_repairs() -> list[RepairView]:
    """List the repairs of known issues."""
    return service.every()


@router.post("/repairs/{repair}/runs", status_code=201)
@action(Action.REPAIR_RUN)
async def order_repair(
    *,
    repair: RepairPath,
    request: RepairRequest,
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    workers: WorkersOf,
) -> RepairRunDetailView:
    """Order a run of a repair; the controller begins it within seconds, unless another one runs."""
    run = await service.order(db, repair, request, caller.name, taken=settings.controller, workers=workers)
    return service.view(run)


@router.get("/repair-runs")
@action(Action.REPAIR_READ)
async def list_repair_runs(db: Reading) -> list[RepairRunView]:
    """List the last 100 runs, whoever ordered them, the latest first."""
    return await service.runs(db)


@router.get("/repair-runs/{run_id}")
@action(Action.REPAIR_READ)
async def get_repair_run(run_id: UUID, db: Reading) -> RepairRunDetailView:
    """Show one run with its steps, which come while it runs."""
    return await service.show(db, run_id)


@router.post("/repair-runs/{run_id}/cancel")
@action(Action.REPAIR_RUN)
async def cancel_repair(run_id: UUID, caller: Caller, db: Transaction) -> RepairRunDetailView:
    """Call back a run that the controller has not taken yet."""
    return await service.cancel(db, run_id, caller.name)


@controller.post(CONTROLLER_PATH)
@for_controller
async def report_repairs(message: ControllerReport, db: Transaction, settings: SettingsOf) -> ControllerReply:
    """Take what the controller tells of runs, looks, backups and commands, and say what was ordered.

    No other certificate will do.
    """
    await service.tell(db, message.commands, wanted=audit.is_on(settings))
    if message.nodes is not None:
        await health.record_controller(db, settings, message.nodes)
    else:
        await health.note_controller(db)
    order = await service.take(db, message)
    backup_order = await backups.take(db, message, wants=message.wants and order is None)
    return ControllerReply(order=order, backup_order=backup_order)
