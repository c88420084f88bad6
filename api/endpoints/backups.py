"""Endpoints of backups: administrators of the site see them and order what replaces nothing."""

from __future__ import annotations

from uuid import UUID

from api.auth.policy import Action
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.backups import service
from api.resources.backups.schemas import BackupOrderRequest, BackupOrderView, BackupView

router = Router(tags=["backups"])


@router.get("/backups")
@action(Action.BACKUP_READ)
async def list_backups(db: Reading) -> list[BackupView]:
    """List the backups of the site, the newest first, as its controller told them last."""
    return await service.every(db)


@router.post("/backup-orders", status_code=201)
@action(Action.BACKUP_ORDER)
async def order_backup(
    request: BackupOrderRequest, caller: Caller, db: Transaction, settings: SettingsOf
) -> BackupOrderView:
    """Order a backup, or that one is verified or its restore rehearsed; the controller begins it within seconds."""
    return await service.order(db, request, caller.name, taken=settings.controller)


@router.get("/backup-orders")
@action(Action.BACKUP_READ)
async def list_backup_orders(db: Reading) -> list[BackupOrderView]:
    """List the last 100 orders, the latest first."""
    return await service.orders(db)


@router.get("/backup-orders/{order_id}")
@action(Action.BACKUP_READ)
async def get_backup_order(order_id: UUID, db: Reading) -> BackupOrderView:
    """Show one order, and what has become of it."""
    return await service.show(db, order_id)


@router.post("/backup-orders/{order_id}/cancel")
@action(Action.BACKUP_ORDER)
async def cancel_backup_order(order_id: UUID, caller: Caller, db: Transaction) -> BackupOrderView:
    """Call back an order that the controller has not taken yet."""
    return await service.cancel(db, order_id, caller.name)
