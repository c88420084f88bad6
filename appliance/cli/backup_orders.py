"""`penstock backup` away from the reservoir node: the API lists what its controller told, and hands orders on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from appliance.cli import config
from appliance.cli.output import Format, moment, print_json, print_table, show
from appliance.cli.waiting_orders import WaitingOrder, identity_of, under_way
from common.backup_protocol import (
    LATE,
    OPEN_ORDERS,
    BackupAction,
    BackupOrderReport,
    BackupOrderState,
    BackupReport,
)
from common.errors import ProcessError

if TYPE_CHECKING:
    from appliance.client.views import BackupOrder

STEP_S = 1.0
"""So often the API is asked how an order goes on."""
AHEAD = "by a clock that was ahead"
ORDERS_HEAD = ("ORDER", "ACTION", "WHEN", "BY", "STATE", "BACKUP", "REASON")
HEAD = ("BACKUP", "OF", "STATE", "ROWS", "SIZE", "KEYS", "COPY")


def show_list(output: Format) -> None:
    """List the backups that the API knows; exit code 1 where none of the last day is good."""
    client = config.load().client
    found = client.backups.list()
    backups = [BackupReport.model_validate(backup) for backup in found]
    if output is Format.JSON:
        orders = [order for order in client.backups.orders() if order["state"] in OPEN_ORDERS]
        print_json({"backups": found, "orders": orders})
    else:
        print_backups(backups)
        for line in under_way(client):
            print(line)
    raise typer.Exit(0 if has_fresh(backups, datetime.now(UTC)) else 1)


def has_fresh(backups: Iterable[BackupReport], now: datetime) -> bool:
    """Say whether one of the last day is good."""
    return any(each.good and not each.ahead and now - each.time <= LATE for each in backups)


def print_backups(backups: Iterable[BackupReport]) -> None:
    """Print a table of backups."""
    print_table(HEAD, [_row(backup) for backup in backups])


def known() -> list[BackupOrderReport]:
    """Return the orders that the API knows, the latest first."""
    return [BackupOrderReport.model_validate(order) for order in config.load().client.backups.orders()]


def print_history(orders: list[BackupOrderReport], output: Format) -> None:
    """Print orders, and what came of each."""
    show(
        [order.model_dump(mode="json") for order in orders],
        output,
        lambda _: print_table(ORDERS_HEAD, [_ended(order) for order in orders], ("REASON",)),
    )


def run(action: BackupAction, name: str | None, output: Format) -> None:
    """Order something and wait for its end; it goes on when the connection is lost. ProcessError where it fails."""
    client = config.load().client
    waiting = WaitingOrder(client)
    order = client.backups.order(action=action.value, backup=name)
    while order["state"] in OPEN_ORDERS:
        waiting.look(order)
        time.sleep(STEP_S)
        order = client.backups.get(order["id"])
    if output is Format.JSON:
        print_json(order)
    elif order["state"] == BackupOrderState.DONE.value:
        print(_told(order))
    if order["state"] != BackupOrderState.DONE.value:
        # the reason has its hint
        raise ProcessError(order["reason"].rstrip("."), where=f"backup {action}")


def cancel(said: str, output: Format) -> None:
    """Call back an order that waits."""
    api = config.load().client.backups
    order = api.cancel(identity_of(said, api.orders()))
    show(order, output, lambda _: print(f"backup {order['action']}: {order['state']}"))


def _row(backup: BackupReport) -> tuple[str, ...]:
    state = "good" if backup.good else f"failed: {backup.problem}"
    return (
        backup.name,
        moment(backup.time.isoformat()),
        f"{state}, {AHEAD}" if backup.ahead else state,
        str(backup.rows),
        f"{backup.size / 1e6:.1f}M",
        "yes" if backup.sealed else "no",
        backup.copied or "-",
    )


def _ended(order: BackupOrderReport) -> tuple[str, ...]:
    when = moment(order.ordered_at.isoformat())
    return order.id[:8], order.action.value, when, order.by, order.state.value, order.backup or "-", order.reason


def _told(order: BackupOrder) -> str:
    if order["action"] == BackupAction.DRILL.value:
        return f"{order['backup']} came back as a scratch database in {order['seconds']:.1f} s"
    return f"{order['backup']} is good: its rows came back"
