"""System: what the control API says of itself."""

from __future__ import annotations

from appliance.client.transport import Resource
from appliance.client.views import Health, Settings


class System(Resource):
    """The control API itself."""

    def health(self) -> Health:
        """Return an answer while API and database work."""
        return self._api.call(Health, "GET", "/health")

    def settings(self) -> Settings:
        """Return how GPUs are divided."""
        return self._api.call(Settings, "GET", "/settings")
