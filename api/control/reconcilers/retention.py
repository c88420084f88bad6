"""Retention: what was kept for its time is deleted, and what is kept for long is packed.

That is done a part at a time, so that nobody waits for a long statement.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import Database
from api.resources.accounting import service as accounting
from api.resources.api_keys import service as api_keys
from api.resources.denied_calls import service as denied_calls
from api.resources.health import service as health
from api.resources.logins import service as logins
from api.resources.metrics import service as metrics
from api.resources.sessions import lifecycle
from api.settings import Settings

log = structlog.get_logger()

PART = 500
"""So many sessions are deleted or added up by one transaction, and several times as many hours of samples."""
PARTS = 200
"""So many parts of a kind at most are done at a time; the rest is left to the next."""

Forget = Callable[[AsyncSession], Awaitable[int]]


async def apply(database: Database, settings: Settings, at: datetime) -> None:
    """Pack what is kept for long, and delete what is kept no longer."""

    def before(keep_s: float) -> datetime:
        return at - timedelta(seconds=keep_s)

    kinds: dict[str, Forget] = {
        "metrics": partial(metrics.forget, at=at, keep_s=settings.metrics_keep_s),
        "denied calls": partial(denied_calls.forget, at=at, keep_s=settings.denied_call_keep_s),
        "ended sessions": partial(lifecycle.forget_ended, before=before(settings.ended_session_keep_s), limit=PART),
        "spans": partial(accounting.add_up, before=before(settings.accounting_detail_keep_s), limit=PART),
        "busy hours": partial(accounting.forget_hours, before=before(settings.accounting_detail_keep_s)),
        "logins": partial(logins.forget_ended, at=at),
        "changes of checks": partial(health.forget, before=before(settings.health_keep_s), limit=PART),
        "keys": partial(api_keys.forget_ended, before=before(settings.ended_key_keep_s)),
    }
    async with database.transaction() as db:
        await accounting.note_gpus(db, at)
    if count := await _in_parts(database, partial(metrics.pack, at=at), whole=1):
        log.info("packed", kind="metrics", count=count)
    for kind, forget in kinds.items():
        if count := await _in_parts(database, forget, whole=PART):
            log.info("forgotten", kind=kind, count=count)


async def _in_parts(database: Database, forget: Forget, whole: int) -> int:
    """Go on while a part is `whole`; returns how many there were."""
    total = 0
    for _ in range(PARTS):
        async with database.transaction() as db:
            count = await forget(db)
        total += count
        if count < whole:
            break
    return total
