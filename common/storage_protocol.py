"""The protocol of API and node agent: storages and the folders of volumes in them. Pure."""

from __future__ import annotations

from pydantic import Field

from common.messages import Report

STORAGE_PATH = "/v1/storage"
"""GET ?root=FOLDER → StorageState: the folders of volumes that a storage has, and what it tells of their sizes
· DELETE ?folder=FOLDER → FolderRemoval: removes a folder with what is in it; asked again, it tells how far that is."""


class FolderState(Report):
    """A folder of a storage, by its path below the root; MiB that are in it and may be, None where nobody can tell."""

    folder: str
    used_mib: int | None = Field(default=None, ge=0)
    limit_mib: int | None = Field(default=None, ge=0)


class StorageState(Report):
    """What a node sees of a storage; `mounted` says that it is the site's, by the marker at its root."""

    mounted: bool
    folders: list[FolderState] = Field(default_factory=list, max_length=100_000)


class FolderRemoval(Report):
    """Whether a folder that is to go is still there, and why removing it failed the last time.

    That it is not says something only where the storage is `mounted`: the site's, by the marker at its root.
    """

    there: bool
    mounted: bool = False
    error: str = ""
