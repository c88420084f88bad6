"""Health: the checks of nodes and of the site."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import chain, islice
from typing import Unpack

from appliance.client.requests import AcknowledgementRequest
from appliance.client.transport import Resource
from appliance.client.views import Check, CheckChange
from appliance.client.words import CheckState

CHECK = "/health/checks/{check_id}"


class Health(Resource):
    """The checks of nodes and of the site, for administrators and auditors."""

    def checks(self, *, node: str | None = None, state: Sequence[CheckState] = ()) -> builtins.list[Check]:
        """Return checks: of a node, `""` for the site itself, in some states."""
        query = {"node": node, "state": state or None}
        return self._api.call(builtins.list[Check], "GET", "/health/checks", query=query)

    def changes(
        self, *, node: str | None = None, check: str | None = None, most: int = 200
    ) -> builtins.list[CheckChange]:
        """Return how checks have changed, `most` at most, newest first."""
        pages = self._api.pages(CheckChange, "/health/changes", query={"node": node, "check": check})
        return builtins.list(islice(chain.from_iterable(pages), most))

    def acknowledge(self, check_id: str, /, **request: Unpack[AcknowledgementRequest]) -> Check:
        """Tell nobody of a check until a moment."""
        return self._api.call(Check, "PUT", CHECK + "/acknowledgement", {"check_id": check_id}, body=request)

    def end_acknowledgement(self, check_id: str) -> Check:
        """Tell of a check again."""
        return self._api.call(Check, "DELETE", CHECK + "/acknowledgement", {"check_id": check_id})

    def clear(self, check_id: str) -> Check:
        """Let a check count as well until what it tells of occurs anew."""
        return self._api.call(Check, "POST", CHECK + "/clear", {"check_id": check_id})

    def metrics(self) -> bytes:
        """Return checks and nodes in the text format of Prometheus."""
        return b"".join(self._api.stream("/metrics", {}))
