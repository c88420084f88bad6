"""Repairs of known issues, ordered from the controller of the site."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import RepairRequest
from appliance.client.transport import Resource
from appliance.client.views import Controller, Repair, RepairRun, RepairRunDetail


class Repairs(Resource):
    """Repairs, for administrators, and for auditors to look at."""

    def controller(self) -> Controller:
        """Return when the controller of the site was last heard of."""
        return self._api.call(Controller, "GET", "/controller")

    def list(self) -> builtins.list[Repair]:
        """Return the repairs."""
        return self._api.call(builtins.list[Repair], "GET", "/repairs")

    def run(self, repair: str, /, **request: Unpack[RepairRequest]) -> RepairRunDetail:
        """Order a run."""
        return self._api.call(RepairRunDetail, "POST", "/repairs/{repair}/runs", {"repair": repair}, body=request)

    def runs(self) -> builtins.list[RepairRun]:
        """Return the last runs, the latest first."""
        return self._api.call(builtins.list[RepairRun], "GET", "/repair-runs")

    def get(self, run: str) -> RepairRunDetail:
        """Return one run with its steps so far."""
        return self._api.call(RepairRunDetail, "GET", "/repair-runs/{run_id}", {"run_id": run})

    def cancel(self, run: str) -> RepairRunDetail:
        """Call back a run that waits."""
        return self._api.call(RepairRunDetail, "POST", "/repair-runs/{run_id}/cancel", {"run_id": run})
