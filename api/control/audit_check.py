"""Check that the audit log is as it was written, as far as the leader sees it: what it deletes, and what it sends."""

from __future__ import annotations

from api.database import Database
from api.resources.audit import service
from api.settings import Settings
from common.checks import Check, CheckState


async def look(database: Database, settings: Settings) -> list[Check]:
    """Return the check; none where no log is kept. It fails until it is cleared by hand."""
    if not service.is_on(settings):
        return []
    async with database.reading() as db:
        fault, at = await service.fault(db)
    about = "audit.log", "audit log is as it was written"
    if at is None:
        return [Check(*about, CheckState.OK, "nothing else was found when it was deleted or sent")]
    hint = "run `penstock audit verify`, look for who could write on the master, and clear this check"
    return [Check(*about, CheckState.FAIL, fault, hint, since=at.isoformat())]
