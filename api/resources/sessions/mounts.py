"""Mounts of a session: folders of its project on the shared storage, and those of the node that are opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from api.resources.sessions.schemas import HostMountRequest, SessionRequest
from api.settings import Settings
from common.errors import InputError


def mounts(request: SessionRequest, settings: Settings) -> list[dict[str, Any]]:
    """Return what to mount; raises InputError for folders that this site does not offer to sessions."""
    if request.volumes and settings.volume_root is None:
        raise InputError(
            "this site has no shared storage for sessions", where="volumes", hint="submit the session without volumes"
        )
    volumes = [
        _mount(f"{settings.volume_root}/{request.project}/{volume.name}", volume.target, volume.read_only)
        for volume in request.volumes
    ]
    return volumes + [_host_mount(mount, settings.host_mounts) for mount in request.host_mounts]


def _host_mount(wanted: HostMountRequest, opened: Sequence[str]) -> dict[str, Any]:
    """Return the mount of a folder that is opened; one opened with `:ro` is for reading only.

    What lies in it cannot be mounted by itself: whoever writes there could put a link in its place that leads out.
    """
    for entry in opened:
        folder = entry.removesuffix(":ro")
        if PurePosixPath(wanted.source) == PurePosixPath(folder):
            return _mount(wanted.source, wanted.target, wanted.read_only or entry.endswith(":ro"))
    folders = ", ".join(entry.removesuffix(":ro") for entry in opened)
    raise InputError(
        f"{wanted.source} of the nodes is not open to sessions",
        where="host_mounts",
        hint=f"mount one of {folders}" if folders else "use a volume of the project instead",
    )


def _mount(source: str, target: str, read_only: bool) -> dict[str, Any]:
    return {"source": source, "target": target} | ({"read_only": True} if read_only else {})
