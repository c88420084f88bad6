"""System: what the control API says of itself, and the site at a glance."""

from __future__ import annotations

from appliance.client.transport import Resource
from appliance.client.views import Health, Overview, Settings, Summary


class System(Resource):
    """The control API itself, and what its site comes to."""

    def health(self) -> Health:
        """Return an answer while API and database work."""
        return self._api.call(Health, "GET", "/health")

    def settings(self) -> Settings:
        """Return how GPUs are divided."""
        return self._api.call(Settings, "GET", "/settings")

    def overview(self, *, limit: int | None = None, nodes: int | None = None) -> Overview:
        """Return what there is of GPUs and who holds how much, with so many running and waiting sessions and nodes."""
        return self._api.call(Overview, "GET", "/overview", query={"limit": limit, "nodes": nodes})

    def summary(self, *, limit: int | None = None) -> Summary:
        """Return what the caller runs, so many sessions of it, and may run, and where there is room."""
        return self._api.call(Summary, "GET", "/summary", query={"limit": limit})
