"""Backups of the site: which there are, whether they are good, and orders that replace nothing."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Form, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router
from api.endpoints import auditing, backups
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.backups import service
from api.resources.backups.schemas import BackupOrderRequest
from api.resources.repairs import service as repairs
from api.tables.backups import Backup, BackupOrder
from common.backup_protocol import BackupAction

SHOWN, ORDERS = 200, 20
"""So many backups are shown, and so many orders."""

router = Router(prefix="/backups")


class OrderForm(BaseModel):
    """What to do, and with which backup; none is the newest good one."""

    action: BackupAction
    backup: Annotated[str, Field(max_length=64)] = ""


@router.get("")
@action(Action.BACKUP_READ)
async def list_backups(request: Request, caller: Caller, db: Reading, settings: SettingsOf) -> Response:
    """Show the backups, the newest first, and the last orders."""
    about = await repairs.controller(db, taken=settings.controller)
    stamp = await pages.stamp(request, db, (*stamps.PEOPLE, Backup, BackupOrder), caller.id, about)
    if answer := pages.unchanged(request, stamp):
        return answer
    found = await service.every(db)
    values = {
        "backups": found[:SHOWN],
        "more": max(0, len(found) - SHOWN),
        "orders": (await service.orders(db))[:ORDERS],
        "may_order": caller.allows(Action.BACKUP_ORDER) and settings.controller,
        "taken": settings.controller,
        "controller": about,
    }
    return await pages.live(request, "backups.html", "backups_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH, Depends(auditing.told_as("backup-orders"))])
@action(Action.BACKUP_ORDER)
async def order_backup(
    form: Annotated[OrderForm, Form()],
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
) -> None:
    """Order a backup, or that one is verified or its restore rehearsed."""
    body = {"action": form.action, "backup": form.backup or None}
    await backups.order_backup(forms.checked(BackupOrderRequest, body), caller, db, settings)


_cancelled = Depends(auditing.told_as("backup-orders/{order_id}/cancel"))


@router.post("/orders/{order_id}/cancel", status_code=204, dependencies=[REFRESH, _cancelled])
@action(Action.BACKUP_ORDER)
async def cancel_backup_order(order_id: UUID, caller: Caller, db: Transaction) -> None:
    """Call back an order that waits."""
    await backups.cancel_backup_order(order_id, caller, db)
