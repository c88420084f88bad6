"""Reconciler that the clock drives: lost nodes, deadlines, time limits, periods and drains, in that order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import structlog

from api.clock import Clock
from api.control.reconcilers import deadlines, drains, glance, limits, losses, retention, rights
from api.control.reconcilers.failures import Failures
from api.control.reconcilers.glance import Glance
from api.database import Database
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
COUNT_S = 4.0
"""So often the heartbeats of all nodes are counted."""
TIDY_S = 600.0
"""So often what has been kept for its time is deleted."""


class Silence:
    """For how long nothing was heard of nodes, by the clock of this process that nobody sets.

    The database keeps how many heartbeats were written, and no moment: whoever begins to lead gives every node all of
    its time.
    """

    def __init__(self) -> None:
        """Begin with having heard from nobody yet."""
        self._heard: dict[UUID, tuple[int, float]] = {}

    def longer_than(self, limit_s: float, counts: Mapping[UUID, int], moment: float) -> dict[UUID, int]:
        """Return those of some nodes that have been silent for so long, with their counts of heartbeats."""
        before = self._heard
        self._heard = {
            id_: known if (known := before.get(id_)) and known[0] == count else (count, moment)
            for id_, count in counts.items()
        }
        return {id_: count for id_, (count, since) in self._heard.items() if moment - since >= limit_s}


class TimedReconciler:
    """Looks for what is due, and opens a transaction only where there is something."""

    def __init__(self, database: Database, settings: Settings, clock: Clock, failures: Failures) -> None:
        """Begin now: every agent gets the time to report before it counts as lost."""
        self._failures = failures
        self._database = database
        self._settings = settings
        self._clock = clock
        self._began = self._looked = self._clock.monotonic()
        self._tidied = self._counted = float("-inf")
        self._judges = False
        self._silence = Silence()

    async def apply(self, seen: Glance | None = None) -> bool:
        """Do what is due, of what was seen at a glance; returns whether anything has changed."""
        at = self._clock.now()
        if seen is None:
            async with self._database.reading() as db:
                seen = await glance.look(db, self._settings, at)
        changed = await self._mark_lost(seen)
        await self._forget_old(at)
        return (seen.has_due and await self._apply(at)) or changed

    async def _apply(self, at: datetime) -> bool:
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
        if not (updates or draining):
            return False
        async with self._database.transaction() as db:
            await self._failures.write(db, updates)
            for node in draining:
                log.info("drained", node=node.name)
                await nodes.finish_drain(db, node.name)
        return True

    async def _mark_lost(self, seen: Glance) -> bool:
        """Do what the silence of nodes asks for; returns whether anything has changed."""
        silent = await self._silent()
        async with self._database.reading() as db:
            unfinished = await losses.left_over(db) if seen.lost and self._judges else ()
        if silent or unfinished:
            async with self._database.transaction() as db:
                for node in await nodes.mark_lost(db, silent):
                    log.warning("lost", node=node.name)
                    await losses.after_loss(db, node, self._settings.node_lost_s, self._failures)
                for node in unfinished:
                    await losses.after_loss(db, node, self._settings.node_lost_s, self._failures)
        return bool(silent or unfinished)

    async def _silent(self) -> dict[UUID, int]:
        """Return the nodes that have been silent for too long; they are counted once in a while."""
        moment = self._clock.monotonic()
        if self._counted + min(COUNT_S, self._settings.node_lost_s / 4) > moment:
            return {}
        self._counted = moment
        async with self._database.reading() as db:
            counts = await nodes.heard(db)
        self._judges = self._may_judge()
        silent = self._silence.longer_than(self._settings.node_lost_s, counts, self._looked)
        return silent if self._judges else {}

    async def _forget_old(self, at: datetime) -> None:
        """Delete what is kept no longer; one look in a while is enough."""
        if self._tidied + TIDY_S <= self._clock.monotonic():
            self._tidied = self._clock.monotonic()
            await retention.apply(self._database, self._settings, at)

    def _may_judge(self) -> bool:
        """Return whether silence means anything: after a start and after a stall every agent has time to be heard."""
        moment = self._clock.monotonic()
        if moment - self._looked > max(STALL_S, self._settings.node_lost_s / 2):
            self._began = moment
            self._silence = Silence()
        self._looked = moment
        return moment - self._began >= self._settings.node_lost_s + SLACK_S
