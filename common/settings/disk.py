"""Settings of full disks: the part `disk` of `site.yml`, where the names have no `disk_`. Pure."""

from __future__ import annotations

from pydantic import Field

from common.strict import StrictModel

STOP_PERCENT = 95


class DiskSettings(StrictModel):
    """How full a disk may be before what can wait has to."""

    disk_stop_percent: int = Field(
        default=STOP_PERCENT,
        ge=50,
        le=100,
        description="on a node whose disk is fuller, which fails its check, no image is pulled, no package "
        "uploaded, no bundle imported; where the master's is, no session is submitted, and what they use is recorded "
        "later. All else goes on",
    )
