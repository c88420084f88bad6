"""The leader's rules that the clock drives: lost nodes, deadlines, time limits, periods and drains, in that order."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from api.database import Database
from api.nodes import service as nodes
from api.reconcilers import change, deadlines, drains, limits, losses
from api.sessions import service as sessions
from api.sessions.models import HOLDING
from api.settings import Settings

log = structlog.get_logger()


class Rules:
    """Looks for what is due, and opens a transaction only where there is something."""

    def __init__(self, database: Database, settings: Settings, clock: Callable[[], datetime]) -> None:
        """Begin now: every agent gets the time to report before it counts as lost."""
        self._database = database
        self._settings = settings
        self._clock = clock
        self._began = time.monotonic()

    async def apply(self) -> None:
        """Do what is due."""
        at = self._clock()
        await self._mark_lost(at)
        async with self._database.reading() as db:
            draining = await nodes.draining(db)
            changes = [*await deadlines.due(db, self._settings, at), *await limits.due(db, self._settings, at)]
            if draining:
                changes += await drains.due(db, draining, at)
                holding = await sessions.of_nodes(db, [node.id for node in draining], HOLDING)
                used = {node.id for session in holding for node in session.nodes}
                draining = [node for node in draining if node.id not in used]
        if changes or draining:
            async with self._database.transaction() as db:
                await change.write(db, changes)
                for node in draining:
                    log.info("drained", node=node.name)
                    await nodes.finish_drain(db, node.name)

    async def _mark_lost(self, at: datetime) -> None:
        if time.monotonic() - self._began < self._settings.node_lost_s:
            return
        since = at - timedelta(seconds=self._settings.node_lost_s)
        async with self._database.reading() as db:
            if not await nodes.any_silent(db, since):
                return
        async with self._database.transaction() as db:
            for node in await nodes.mark_lost(db, since):
                log.warning("lost", node=node.name)
                await losses.after_loss(db, node, self._settings.node_lost_s)
