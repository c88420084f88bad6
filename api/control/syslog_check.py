"""Check that the site's syslog server has the audit log: what it does not take waits, and somebody has to know."""

from __future__ import annotations

from datetime import datetime, timedelta

from api.database import Database
from api.resources.audit import service
from api.settings import Settings
from common.checks import Check, CheckState

FAILS_AFTER = timedelta(hours=1)
"""A server that is away for less is a warning."""


async def look(database: Database, settings: Settings, at: datetime) -> list[Check]:
    """Return the check; none where no server is to have the log."""
    if not settings.audit_syslog:
        return []
    async with database.reading() as db:
        sent, end = await service.sent(db), (await service.head(db)).seq
    about = "audit.syslog", "syslog server has the audit log"
    if sent.behind_since is None:
        return [Check(*about, CheckState.OK, f"{settings.audit_syslog} has it up to line {sent.seq}")]
    state = CheckState.FAIL if at - sent.behind_since >= FAILS_AFTER else CheckState.WARN
    said = f"{end - sent.seq} lines wait since {sent.behind_since:%Y-%m-%d %H:%M:%S} UTC: {sent.reason}"
    hint = f"look whether {settings.audit_syslog} takes connections from the master; nothing is lost meanwhile"
    return [Check(*about, state, said, hint)]
