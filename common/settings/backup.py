"""Settings of the backups: the part `backup` of `site.yml`. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from common.settings.options import PlainPath
from common.strict import StrictModel

Recipient = Annotated[str, Field(pattern=r"^age1[02-9ac-hj-np-z]{58}$")]


class BackupSettings(StrictModel):
    """When backups are taken, which are kept, whose key opens the secrets, and where the second place is."""

    hour: int = Field(
        default=2, ge=0, le=23, description="hour of the day at which a backup is taken, on the reservoir node's clock"
    )
    keep: int = Field(default=14, ge=1, le=1000, description="so many good backups are kept at most")
    keep_days: int = Field(default=30, ge=1, le=3650, description="for so many days; the three newest good ones stay")
    recipient: Recipient | None = Field(
        default=None,
        description="public key that authority, keys and state are sealed to; without it no backup has them",
    )
    copy_to: PlainPath | None = Field(
        default=None,
        description="folder of the reservoir node for a copy: another disk, or the mount of a storage node",
    )
    wal_to: PlainPath | None = Field(
        default=None,
        description="folder of the master for an archive of the database's log (WAL): another disk, or the mount of a "
        "storage node; the database comes back from it as at any moment",
    )
    wal_timeout_s: int = Field(
        default=30, ge=1, le=3600, description="so old a change gets at most before it is archived"
    )
    wal_days: int = Field(default=7, ge=1, le=365, description="for so many days back the archive is kept")
