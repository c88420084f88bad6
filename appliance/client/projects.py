"""Projects, and the groups of nodes that they may use."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import GroupChange, GroupRequest, ProjectChange, ProjectRequest
from appliance.client.transport import Resource
from appliance.client.views import Done, Group, Project


class Projects(Resource):
    """Who shares which quota of GPUs."""

    def list(self) -> builtins.list[Project]:
        """Return the projects that the caller may see."""
        return self._api.call(list[Project], "GET", "/projects")

    def get(self, name: str) -> Project:
        """Return one project."""
        return self._api.call(Project, "GET", "/projects/{name}", {"name": name})

    def create(self, **request: Unpack[ProjectRequest]) -> Project:
        """Create a project."""
        return self._api.call(Project, "POST", "/projects", body=request)

    def update(self, name: str, /, **changes: Unpack[ProjectChange]) -> Project:
        """Change a project; what is left out stays."""
        return self._api.call(Project, "PATCH", "/projects/{name}", {"name": name}, body=changes)

    def delete(self, name: str) -> Done:
        """Delete a project that has no live session."""
        return self._api.call(Done, "DELETE", "/projects/{name}", {"name": name})


class Groups(Resource):
    """Resource groups: nodes, and who may use them."""

    def list(self) -> builtins.list[Group]:
        """Return the resource groups that the caller may use or looks after."""
        return self._api.call(list[Group], "GET", "/resource-groups")

    def get(self, name: str) -> Group:
        """Return one resource group."""
        return self._api.call(Group, "GET", "/resource-groups/{name}", {"name": name})

    def create(self, **request: Unpack[GroupRequest]) -> Group:
        """Create a resource group."""
        return self._api.call(Group, "POST", "/resource-groups", body=request)

    def update(self, name: str, /, **changes: Unpack[GroupChange]) -> Group:
        """Change a resource group; what is left out stays."""
        return self._api.call(Group, "PATCH", "/resource-groups/{name}", {"name": name}, body=changes)

    def delete(self, name: str) -> Done:
        """Delete a resource group that no project keeps to and no live session asks for."""
        return self._api.call(Done, "DELETE", "/resource-groups/{name}", {"name": name})
