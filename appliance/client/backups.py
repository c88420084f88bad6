"""Backups of the site, ordered from its controller."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import BackupOrderRequest
from appliance.client.transport import Resource
from appliance.client.views import Backup, BackupOrder


class Backups(Resource):
    """Backups, for administrators."""

    def list(self) -> builtins.list[Backup]:
        """Return the backups, the newest first."""
        return self._api.call(builtins.list[Backup], "GET", "/backups")

    def order(self, **request: Unpack[BackupOrderRequest]) -> BackupOrder:
        """Order a backup, or something about one."""
        return self._api.call(BackupOrder, "POST", "/backup-orders", body=request)

    def orders(self) -> builtins.list[BackupOrder]:
        """Return the last orders, the latest first."""
        return self._api.call(builtins.list[BackupOrder], "GET", "/backup-orders")

    def get(self, order: str) -> BackupOrder:
        """Return one order, and what has become of it."""
        return self._api.call(BackupOrder, "GET", "/backup-orders/{order_id}", {"order_id": order})

    def cancel(self, order: str) -> BackupOrder:
        """Call back an order that waits."""
        return self._api.call(BackupOrder, "POST", "/backup-orders/{order_id}/cancel", {"order_id": order})
