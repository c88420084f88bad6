"""Nodes and their GPUs."""

from __future__ import annotations

import builtins

from appliance.client.transport import Resource
from appliance.client.views import Node


class Nodes(Resource):
    """The machines that sessions run on."""

    def list(self) -> builtins.list[Node]:
        """Return all nodes that the caller may see."""
        return self._api.call(list[Node], "GET", "/nodes")

    def get(self, name: str) -> Node:
        """Return one node."""
        return self._api.call(Node, "GET", "/nodes/{name}", {"name": name})
