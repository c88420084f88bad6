"""Images that sessions may use."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import ImageRequest
from appliance.client.transport import Resource
from appliance.client.views import Done, Image

IMAGE = "/images/{name}:{tag}"


class Images(Resource):
    """Images, each a name with a tag, global or for projects."""

    def list(self, project: str | None = None) -> builtins.list[Image]:
        """Return the images of a project, or of all projects that the caller sees, with the global ones."""
        return self._api.call(list[Image], "GET", "/images", query={"project": project})

    def create(self, **request: Unpack[ImageRequest]) -> Image:
        """Register an image."""
        return self._api.call(Image, "POST", "/images", body=request)

    def check(self, name: str, tag: str, *, project: str | None = None) -> Image:
        """Let a node try to pull an image once more; of a project where it is not global."""
        return self._api.call(Image, "POST", IMAGE + "/check", {"name": name, "tag": tag}, query={"project": project})

    def delete(self, name: str, tag: str, *, project: str | None = None) -> Done:
        """Take an image off the list, of a project where it is not global."""
        return self._api.call(Done, "DELETE", IMAGE, {"name": name, "tag": tag}, query={"project": project})
