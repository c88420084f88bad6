"""Room on the master's disks: what can wait is refused while there is hardly any, and all else is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import Depends

from api.endpoints.access import SettingsOf
from common.disk_limit import DiskLimit

FOLDERS = (Path("/var/lib/postgresql"), Path("/var/lib/penstock"))
"""Of the database and of the API; that of the audit log, which never waits, is in the settings."""


async def _limit(settings: SettingsOf) -> DiskLimit:
    folders = [*FOLDERS, *([settings.audit_folder] if settings.audit_folder else [])]
    return DiskLimit(folders, settings.disk_stop_percent)


async def _for_sessions(limit: Annotated[DiskLimit, Depends(_limit)]) -> None:
    limit.refuse_where_full("a new session")


async def _for_metrics(limit: Annotated[DiskLimit, Depends(_limit)]) -> None:
    limit.refuse_where_full("what sessions use")


RoomForSessions = Annotated[None, Depends(_for_sessions)]
RoomForMetrics = Annotated[None, Depends(_for_metrics)]
