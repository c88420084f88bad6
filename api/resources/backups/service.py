"""Rules of backups: the controller tells which there are and does what was ordered, which replaces nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources import controller_orders
from api.resources.backups import repository
from api.resources.backups.schemas import BackupOrderRequest, BackupOrderView, BackupView
from api.tables.backups import Backup, BackupOrder
from common import backup_protocol
from common.backup_protocol import BackupOrderReport, BackupOrderState
from common.errors import ConflictError, NotFoundError
from common.repair_protocol import ControllerReport
from common.sentence import Sentence


async def every(db: AsyncSession) -> list[BackupView]:
    """Return all backups, the newest first, as the controller told it last."""
    return [BackupView.model_validate(backup.record) for backup in await repository.every(db)]


async def order(db: AsyncSession, request: BackupOrderRequest, user: str, *, taken: bool) -> BackupOrderView:
    """Order something; `taken` says whether the controller of the site takes orders.

    Raises NotFoundError for a backup that there is not, ConflictError where nobody would do it or one waits already.
    """
    if not taken:
        raise ConflictError(
            Sentence("the controller of this site takes no orders"),
            where="backup",
            hint=Sentence(
                "run `penstock backup now` on the reservoir node; or set `repair.controller: true` and deploy"
            ),
        )
    if request.backup and request.backup not in {backup.name for backup in await repository.every(db)}:
        raise NotFoundError(
            Sentence("there is no backup {name}", name=request.backup),
            where="backup",
            hint=Sentence("list the backups"),
        )
    if (waiting := await controller_orders.waiting_alone(db, BackupOrder)) is not None:
        raise ConflictError(
            Sentence("an order ({action}) waits already", action=waiting.action),
            where="backup",
            hint=Sentence("wait until it has ended"),
        )
    placed = BackupOrder(action=request.action, backup=request.backup, user_name=user, status=BackupOrderState.ORDERED)
    db.add(placed)
    await db.flush()
    return _view(placed)


async def orders(db: AsyncSession) -> list[BackupOrderView]:
    """Return the last orders, the latest first."""
    return [_view(each) for each in await controller_orders.latest(db, BackupOrder)]


async def show(db: AsyncSession, identity: UUID) -> BackupOrderView:
    """Return one order; raises NotFoundError."""
    return _view(await controller_orders.get(db, BackupOrder, identity))


async def cancel(db: AsyncSession, identity: UUID, user: str) -> BackupOrderView:
    """Call back an order that waits; raises NotFoundError, and ConflictError for one that does not wait any more."""
    return _view(await controller_orders.cancel(db, BackupOrder, identity, user))


async def take(db: AsyncSession, report: ControllerReport, *, wants: bool) -> backup_protocol.BackupOrder | None:
    """Take in what the controller tells of backups, and return what it is to do next where it `wants` an order."""
    if report.backups is not None:
        told = {backup.name: backup for backup in report.backups}.values()
        rows = [
            Backup(name=each.name, position=at, record=each.model_dump(mode="json")) for at, each in enumerate(told)
        ]
        await repository.replace(db, rows)
    for each in report.backup_orders:
        await _note(db, each)
    await db.flush()
    placed = await controller_orders.hand_out(db, BackupOrder) if wants else None
    return backup_protocol.BackupOrder.model_validate(_plain(placed) | {"id": str(placed.id)}) if placed else None


async def _note(db: AsyncSession, told: BackupOrderReport) -> None:
    """Take in one order. What was ordered here stays as it was ordered, and what is over stays over."""
    known = await db.get(BackupOrder, UUID(told.id))
    if known is None or controller_orders.is_settled(known):
        # one of before a restore is nobody's any more
        return
    known.status, known.reason, known.finished_at = told.state, told.reason, told.finished_at
    known.record = {"backup": told.backup, "seconds": told.seconds}


def _view(order: BackupOrder) -> BackupOrderView:
    about = order.record.get("backup") or order.backup
    return BackupOrderView.model_validate(_plain(order) | {"backup": about})


def _plain(order: BackupOrder) -> dict[str, Any]:
    return controller_orders.told(order) | {
        "action": order.action,
        "backup": order.backup,
        "seconds": (order.record or {}).get("seconds", 0.0),
    }
