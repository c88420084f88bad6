"""Orders that wait: the controller does one thing at a time, so who waits is told for what, and may call it back."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from appliance.cli.output import moment
from common.backup_protocol import OPEN_ORDERS
from common.errors import InputError
from common.repairs import OPEN

if TYPE_CHECKING:
    from appliance.client import Client
    from appliance.client.views import BackupOrder, RepairRun


class WaitingOrder:
    """One order from elsewhere, and what was said of it last."""

    def __init__(self, client: Client) -> None:
        """Ask this API; nothing was said yet."""
        self._client = client
        self._said = ""

    def look(self, order: BackupOrder | RepairRun) -> None:
        """Say what an order waits for, on standard error, unless that was said or it waits no more."""
        if order["state"] != "ordered":
            return
        before = under_way(self._client, but=order["id"])
        waits = f"the controller does one thing at a time: {'; '.join(before)}" if before else "for the controller"
        waits += _away(self._client)
        if waits != self._said:
            print(f"ordered, and waits: {waits}", file=sys.stderr, flush=True)
        self._said = waits


def identity_of(said: str, orders: Iterable[BackupOrder | RepairRun]) -> str:
    """Return the id that is meant by it or by its beginning; raises InputError where several are."""
    found = [order["id"] for order in orders if order["id"].startswith(said)]
    if len(found) > 1:
        raise InputError(f"{said} is the beginning of several", where=said, hint="write more of it")
    return found[0] if found else said


def _away(client: Client) -> str:
    """Return that nothing is heard of the controller, where that is so."""
    told = client.repairs.controller()
    if not told["away"]:
        return ""
    since = f" since {moment(told['heard_at'])}" if told["heard_at"] else ""
    return f"; nothing was heard of it{since}: look at `systemctl status penstock-controller` on the reservoir node"


def under_way(client: Client, but: str = "") -> list[str]:
    """Return what was ordered and has not ended, each in one line, the oldest first; `but` that one."""
    found: list[tuple[str, str, str, str, str]] = [
        (run["ordered_at"], f"repair {run['repair']}", run["state"], run["by"], run["id"])
        for run in client.repairs.runs()
        if run["state"] in OPEN
    ]
    found += [
        (order["ordered_at"], f"backup {order['action']}", order["state"], order["by"], order["id"])
        for order in client.backups.orders()
        if order["state"] in OPEN_ORDERS
    ]
    return [
        f"{what} {'waits' if state == 'ordered' else 'runs'} since {moment(at)} (by {by})"
        for at, what, state, by, identity in sorted(found)
        if identity != but
    ]
