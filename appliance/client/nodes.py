"""Nodes and their GPUs."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import ModeRequest, NodeChange
from appliance.client.transport import Resource
from appliance.client.views import Done, Node
from appliance.client.words import NodeMode, NodeState

NODE = "/nodes/{name}"


class Nodes(Resource):
    """The machines that sessions run on."""

    def list(
        self, *, state: NodeState | None = None, mode: NodeMode | None = None, group: str | None = None
    ) -> builtins.list[Node]:
        """Return the nodes by name: in a state, in a mode, of a resource group."""
        query = {"state": state, "mode": mode, "group": group}
        return [node for page in self._api.pages(Node, "/nodes", query=query) for node in page]

    def get(self, name: str) -> Node:
        """Return one node."""
        return self._api.call(Node, "GET", NODE, {"name": name})

    def set_mode(self, name: str, /, **request: Unpack[ModeRequest]) -> Node:
        """Take a node out of service or back."""
        return self._api.call(Node, "PATCH", NODE + "/mode", {"name": name}, body=request)

    def change(self, name: str, /, **request: Unpack[NodeChange]) -> Node:
        """Choose the network interface by which the containers of a node meet those of other nodes."""
        return self._api.call(Node, "PATCH", NODE, {"name": name}, body=request)

    def delete(self, name: str) -> Done:
        """Delete a node that is lost, or in maintenance and empty."""
        return self._api.call(Done, "DELETE", NODE, {"name": name})

    def end_unknown_containers(self, name: str) -> Done:
        """End the containers of a node that belong to sessions which the database does not know."""
        return self._api.call(Done, "DELETE", NODE + "/unknown-containers", {"name": name})
