"""Orders about backups that come from the API: each is carried out by a unit of systemd, and its record is a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from appliance.site import units
from appliance.site.alone import Alone
from appliance.site.backup import restore
from appliance.site.backup.catalogue import Catalogue, Record
from appliance.site.backup.make import Backups
from common import files, process
from common.backup_protocol import (
    MAX_BACKUPS,
    MAX_ORDERS,
    OPEN_ORDERS,
    BackupAction,
    BackupOrder,
    BackupOrderReport,
    BackupOrderState,
    BackupReport,
)
from common.errors import NotFoundError, PenstockError, Problem

Opened = Callable[[], AbstractContextManager[tuple[Backups, Alone]]]
"""What gives the backups of the site while no deploy runs."""
FOLDER = "backup-orders"
"""The folder of the controller's state with the records."""


class Orders:
    """The records of orders in a folder of the state, the latest ones, and the backups that they are about."""

    def __init__(self, state: Path, backups: Path) -> None:
        """Go by the folders, which may not be there yet."""
        self._folder = state / FOLDER
        self._backups = backups

    def keep(self, record: BackupOrderReport) -> None:
        """Write a record, and forget the oldest."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{record.id}.json"
        files.write(path, record.model_dump_json(indent=1) + "\n", 0o600)
        # by a clock that was put back this one may be the oldest
        others = sorted(set(self._folder.glob("*.json")) - {path}, key=lambda other: other.stat().st_mtime)
        for old in others[: max(len(others) - MAX_ORDERS + 1, 0)]:
            old.unlink(missing_ok=True)

    def get(self, identity: str) -> BackupOrderReport:
        """Return a record; raises NotFoundError."""
        found = next((record for record in self.all() if record.id == identity), None)
        if found is None:
            raise NotFoundError(f"there is no order {identity}", where=str(self._folder), hint="order it again")
        return found

    def all(self) -> list[BackupOrderReport]:
        """Return all that can be read; a power cut may leave others."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(BackupOrderReport.model_validate_json(path.read_bytes()))
            except (OSError, ValidationError):
                continue
        return found

    def backups(self) -> list[BackupReport]:
        """Return the backups that there are, the newest first."""
        now = datetime.now(UTC)
        return [report(record, now) for record in Catalogue(self._backups).tries()[:MAX_BACKUPS]]


def start(record: BackupOrderReport, orders: Orders) -> None:
    """Keep what is ordered, and start the unit that does it."""
    orders.keep(record)
    program = Path(sys.executable).with_name("penstock")
    unit = ("--quiet", "--collect", f"--unit={unit_of(record.id)}", f"--description=Penstock backup {record.action}")
    hint = "run it as root on the controller, which runs systemd"
    process.run(["systemd-run", *unit, program, "backup", "carry-out", record.id], hint=hint)


def unit_of(identity: str) -> str:
    """Return the unit of an order."""
    return f"penstock-backup-order-{identity}"


def look(record: BackupOrderReport, orders: Orders) -> BackupOrderReport:
    """Return a record as it is now; one whose unit died without a word has failed from now on."""
    if record.state not in OPEN_ORDERS:
        return record
    # first: what ends between the two has written its end
    alive = units.runs(unit_of(record.id))
    record = orders.get(record.id)
    if record.state in OPEN_ORDERS and not alive:
        record = _ended(record, reason=_unforeseen(record, "its unit ended without a word"))
        orders.keep(record)
    return record


def carry_out(record: BackupOrderReport, orders: Orders, opened: Opened) -> BackupOrderReport:
    """Do what was ordered, write what comes of it, and return that; raises what nobody foresaw after that, too."""
    orders.keep(record.model_copy(update={"state": BackupOrderState.RUNNING}))
    reason = _unforeseen(record, "it was ended from outside")
    done, seconds = record.backup, 0.0
    try:
        with opened() as (backups, held):
            done, seconds = _do(record, backups, held)
        reason = ""
    except PenstockError as error:
        reason = "; ".join(str(problem) for problem in error.problems)
    except Exception as error:
        reason = _unforeseen(record, f"an error that nobody foresaw: {type(error).__name__}: {error}")
        raise
    finally:
        record = _ended(record.model_copy(update={"backup": done, "seconds": seconds}), reason=reason)
        orders.keep(record)
    return record


def begun(order: BackupOrder) -> BackupOrderReport:
    """Return the record of an order that nobody has begun."""
    return BackupOrderReport(**order.model_dump(), state=BackupOrderState.ORDERED)


def _do(order: BackupOrder, backups: Backups, held: Alone) -> tuple[str, float]:
    """Return the backup that an order was about, and how many seconds its way back took."""
    if order.action is BackupAction.DRILL:
        drilled = restore.drill(backups, order.backup, backups.folder, held=held)
        return drilled.record.name, drilled.seconds
    taken = backups.take(held) if order.action is BackupAction.NOW else backups.verify(order.backup, None, held)
    return taken.name, taken.seconds.get("restore", 0.0)


def _unforeseen(order: BackupOrder, reason: str) -> str:
    """Return a reason with the hint that it has not by itself."""
    return str(Problem("", reason, f"look at `journalctl -u {unit_of(order.id)}` on the reservoir node"))


def _ended(record: BackupOrderReport, *, reason: str) -> BackupOrderReport:
    state = BackupOrderState.FAILED if reason else BackupOrderState.DONE
    return record.model_copy(update={"state": state, "reason": reason, "finished_at": datetime.now(UTC)})


def report(record: Record, now: datetime) -> BackupReport:
    """Return what is told of a backup."""
    return BackupReport(
        name=record.name,
        time=record.moment,
        good=record.good,
        problem=record.problem,
        rows=sum(record.tables.values()),
        size=record.size,
        sealed=record.sealed,
        copied=record.copied,
        verified=record.verified,
        ahead=record.is_ahead(now),
    )
