"""Mounts of a session: volumes of its project on the shared storage, and folders of the node that are opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from api.resources.sessions.schemas import SessionRequest, VolumeRequest
from api.settings import Settings
from api.tables.volumes import Volume
from common.errors import InputError
from common.protocol import Mount

VOLUME = "volume"
"""Beside what an agent is told of a mount: the name of the volume; sessions of earlier versions have none."""


def mounts(request: SessionRequest, volumes: Mapping[str, Volume], settings: Settings) -> list[dict[str, Any]]:
    """Return what to mount of a project's volumes, by name, and of the node.

    Raises InputError for folders of the node that this site does not offer to sessions.
    """
    pvcs = [
        _mount(f"{settings.pvc_root}/{volumes[pvc.name].folder}", pvc.target, pvc.read_only) | {VOLUME: pvc.name}
        for pvc in request.pvcs
    ]
    return pvcs + [_volume(volume, settings.host_paths) for volume in request.volumes]


def of_container(kept: Sequence[Mapping[str, Any]]) -> list[Mount]:
    """Return the mounts of a session as its agents are asked for them."""
    return [Mount(**{name: value for name, value in mount.items() if name != VOLUME}) for mount in kept]


def shown(kept: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the mounts of a session as it shows them: a volume by its name, wherever it lies on the storage."""
    return [
        {
            "volume": mount.get(VOLUME),
            "source": None if VOLUME in mount else mount["source"],
            "target": mount["target"],
            "read_only": mount.get("read_only", False),
        }
        for mount in kept
    ]


def storages_of(mounts: Sequence[Mapping[str, Any]], storages: Mapping[str, str]) -> tuple[str, ...]:
    """Return the storages, of those that workers have somewhere, of which a session mounts anything."""
    sources = [PurePosixPath(mount["source"]) for mount in mounts]
    return tuple(name for name, root in storages.items() if any(source.is_relative_to(root) for source in sources))


def _volume(wanted: VolumeRequest, opened: Sequence[str]) -> dict[str, Any]:
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
        where="volumes",
        hint=f"mount one of {folders}" if folders else "use a PVC of the project instead",
    )


def _mount(source: str, target: str, read_only: bool) -> dict[str, Any]:
    return {"source": source, "target": target} | ({"read_only": True} if read_only else {})
