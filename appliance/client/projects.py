"""Projects, their volumes, and the groups of nodes that they may use."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import (
    GroupChange,
    GroupRequest,
    HandOver,
    NewVolume,
    ProjectChange,
    ProjectRequest,
)
from appliance.client.transport import Resource
from appliance.client.views import Done, Group, Project, Volume
from appliance.client.words import AfterProject, VolumeState


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

    def delete(self, name: str, *, volumes: AfterProject | None = None, to: str | None = None) -> Done:
        """Delete a project that has no live session; `volumes` says what becomes of those, `to` who gets them."""
        query = {"volumes": volumes, "to": to}
        return self._api.call(Done, "DELETE", "/projects/{name}", {"name": name}, query=query)


class Volumes(Resource):
    """Storage of projects; a volume is named with its project, or by its id alone."""

    def list(
        self, project: str | None = None, *, state: builtins.list[VolumeState] | None = None
    ) -> builtins.list[Volume]:
        """Return the volumes of a project, or all that the caller may see."""
        return self._api.call(list[Volume], "GET", "/volumes", query={"project": project, "state": state})

    def get(self, name: str, *, project: str | None = None) -> Volume:
        """Return one volume."""
        return self._api.call(Volume, "GET", "/volumes/{name}", {"name": name}, query={"project": project})

    def create(self, **request: Unpack[NewVolume]) -> Volume:
        """Create a volume for a project."""
        return self._api.call(Volume, "POST", "/volumes", body=request)

    def hand_over(self, volume: str, /, *, of: str | None = None, **request: Unpack[HandOver]) -> Volume:
        """Give a volume, `of` a project where it is named, to another project."""
        path = "/volumes/{name}/hand-over"
        return self._api.call(Volume, "POST", path, {"name": volume}, query={"project": of}, body=request)

    def delete(self, name: str, *, project: str | None = None) -> Volume:
        """Delete a volume with its files; they go one after the other."""
        return self._api.call(Volume, "DELETE", "/volumes/{name}", {"name": name}, query={"project": project})


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
