"""Notices: what administrators tell everybody."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import NoticeRequest
from appliance.client.transport import Resource
from appliance.client.views import Done, Notice


class Notices(Resource):
    """What everybody is told."""

    def list(self) -> builtins.list[Notice]:
        """Return what is told now; administrators of the site have what will be told, too."""
        return self._api.call(list[Notice], "GET", "/notices")

    def create(self, **request: Unpack[NoticeRequest]) -> Notice:
        """Tell everybody something."""
        return self._api.call(Notice, "POST", "/notices", body=request)

    def end(self, notice_id: str) -> Done:
        """Tell a notice no more."""
        return self._api.call(Done, "DELETE", "/notices/{notice_id}", {"notice_id": notice_id})
