"""Reconciler that the clock drives: lost nodes, deadlines, time limits, periods and drains, in that order."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from api.clock import Clock
from api.control.reconcilers import deadlines, drains, limits, losses, rights
from api.control.reconcilers.failures import Failures
from api.database import Database
from api.resources.denied_calls import service as denied_calls
from api.resources.metrics import service as metrics
from api.resources.nodes import service as nodes
from api.resources.sessions import service as sessions
from api.settings import Settings
from api.tables.sessions import HOLDING

log = structlog.get_logger()

STALL_S = 5.0
"""A longer pause between two looks, and longer than half of `node_lost_s`, is ours or the database's: nothing that
an agent reported was written in it."""
SLACK_S = 10.0
"""So much longer than `node_lost_s` every agent has after a start or a stall to be heard again."""
TIDY_S = 600.0
"""So often the samples of GPUs and the denied calls that are too old are deleted."""


class TimedReconciler:
    """Looks for what is due, and opens a transaction only where there is something."""

    def __init__(self, database: Database, settings: Settings, clock: Clock, failures: Failures) -> None:
        """Begin now: every agent gets the time to report before it counts as lost."""
        self._failures = failures
        self._database = database
        self._settings = settings
        self._clock = clock
        self._began = self._looked = self._clock.monotonic()
        self._tidied = float("-inf")

    async def apply(self) -> None:
        """Do what is due."""
        at = self._clock.now()
        await self._mark_lost(at)
        await self._forget_old(at)
        async with self._database.reading() as db:
            draining = await nodes.draining(db)
            updates = [
                *await deadlines.due(db, self._settings, at, self._failures),
                *await limits.due(db, self._settings, at, self._failures),
                *await rights.due(db, self._failures),
            ]
            if draining:
                updates += await drains.due(db, draining, at, self._failures)
                holding = await sessions.of_nodes(db, [node.id for node in draining], HOLDING)
                used = {node.id for session in holding for node in session.nodes}
                draining = [node for node in draining if node.id not in used]
        if updates or draining:
            async with self._database.transaction() as db:
                await self._failures.write(db, updates)
                for node in draining:
                    log.info("drained", node=node.name)
                    await nodes.finish_drain(db, node.name)

    async def _mark_lost(self, at: datetime) -> None:
        since = at - timedelta(seconds=self._settings.node_lost_s)
        async with self._database.reading() as db:
            silent = await nodes.any_silent(db, since)
            unfinished = await losses.left_over(db)
        if not self._may_judge():
            return
        if silent or unfinished:
            async with self._database.transaction() as db:
                for node in await nodes.mark_lost(db, since):
                    log.warning("lost", node=node.name)
                    await losses.after_loss(db, node, self._settings.node_lost_s, self._failures)
                for node in unfinished:
                    await losses.after_loss(db, node, self._settings.node_lost_s, self._failures)

    async def _forget_old(self, at: datetime) -> None:
        """Delete samples of GPUs and denied calls that are no longer kept; one look in a while is enough."""
        if self._tidied + TIDY_S > self._clock.monotonic():
            return
        self._tidied = self._clock.monotonic()
        metrics_s, denied_calls_s = self._settings.metrics_keep_s, self._settings.denied_call_keep_s
        async with self._database.reading() as db:
            old = await metrics.any_old(db, at, metrics_s) or await denied_calls.any_old(db, at, denied_calls_s)
        if old:
            async with self._database.transaction() as db:
                await metrics.forget(db, at, metrics_s)
                await denied_calls.forget(db, at, denied_calls_s)

    def _may_judge(self) -> bool:
        """Return whether silence means anything: after a start and after a stall every agent has time to be heard."""
        moment = self._clock.monotonic()
        if moment - self._looked > max(STALL_S, self._settings.node_lost_s / 2):
            self._began = moment
        self._looked = moment
        return moment - self._began >= self._settings.node_lost_s + SLACK_S
