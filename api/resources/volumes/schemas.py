"""Bodies of the volume endpoints."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from api.resources.schemas import Name, Request, View
from api.tables.volumes import Volume, VolumeState


class NewVolume(Request):
    """A volume to create for a project."""

    name: Name
    project: Name


class HandOver(Request):
    """To which project a volume goes, and what it is called there; left out: as before."""

    project: Name
    name: Name | None = None


class AfterProject(StrEnum):
    """What becomes of a project's volumes when it is deleted: kept without a project, deleted, handed over."""

    KEEP = "keep"
    DELETE = "delete"
    HAND_OVER = "hand-over"


class VolumeView(View):
    """A volume. `project` is null for one whose project is gone, which `former_project` was.

    `folder` is where it is below the root of its `storage`. `used_mib` is how much is in it and `limit_mib` how much
    may be, as the storage told at `measured_at`; null where it cannot. `sessions` that have not ended and that the
    caller sees mount it. One that is `deleting` goes away with its files; `reason` says why that has not come to its
    end.
    """

    id: UUID
    name: str
    project: str | None
    former_project: str
    domain: str | None
    storage: str
    folder: str
    state: VolumeState
    reason: str
    used_mib: int | None
    limit_mib: int | None
    measured_at: datetime | None
    sessions: int
    created_by: str
    created_at: datetime

    @classmethod
    def of(cls, volume: Volume, sessions: int) -> VolumeView:
        """Return the view of a row, with how many sessions mount it."""
        made = {"project", "sessions"}
        fields = {name: getattr(volume, name) for name in cls.model_fields.keys() - made}
        return cls(**fields, project=volume.project.name if volume.project else None, sessions=sessions)
