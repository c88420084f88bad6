"""Reconciler that the clock drives: lost nodes, deadlines, time limits, periods and drains, in that order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

import structlog

from api.clock import Clock
from api.control.reconcilers import deadlines, drains, glance, limits, losses, retention, rights
from api.control.reconcilers.clock_steps import ClockSteps
from api.control.reconcilers.failures import Failures
from api.control.reconcilers.glance import Glance
from api.control.reconcilers.unchanged import Unchanged
from api.database import Begin, Database
from api.resources.nodes import service as nodes
from api.resources.projects import spare_had
from api.resources.sessions import lifecycle
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


class TimedReconciler:
    """Looks for what is due, and opens a transaction only where there is something."""

    def __init__(self, database: Database, settings: Settings, clock: Clock, failures: Failures) -> None:
        """Begin now: every agent gets the time to report before it counts as lost."""
        self._failures = failures
        self._database = database
        self._settings = settings
        self._clock = clock
        self._began = self._looked = self._clock.monotonic()
        self._tidied, self._counted, self._spare_counted = self._began, float("-inf"), float("-inf")
        self._judges = False
        self._steps = ClockSteps(clock)
        self._silence, self._losses, self._steps_forward = Unchanged(), Unchanged(), Unchanged()
        self.gone: Collection[UUID] = frozenset()
        """The nodes that have been lost for so long that nothing is waited for there."""

    def begin(self) -> None:
        """Begin to lead."""
        self._steps.begin()

    async def watch(self) -> None:
        """Count heartbeats while another one leads: who follows it knows then for how long nodes have been silent."""
        await self._silent()

    async def apply(self, seen: Glance | None = None, begin: Begin | None = None) -> bool:
        """Do what is due, of what was seen at a glance; returns whether anything has changed.

        `begin` gives the transactions of a leader: who leads no more has not followed the clock.
        """
        at = await self._steps.follow(begin or self._database.transaction)
        if seen is None:
            async with self._database.reading() as db:
                seen = await glance.look(db, self._settings, at)
        changed = await self._mark_lost(seen)
        await self._forget_old(at)
        await self._count_spare(at)
        waited_s = await self._waited_s(seen)
        has_late = any(seconds >= deadlines.shortest_s(self._settings) for seconds in waited_s.values())
        return ((seen.has_due or has_late) and await self._apply(at, waited_s)) or changed

    async def _apply(self, at: datetime, waited_s: Mapping[UUID, float]) -> bool:
        async with self._database.reading() as db:
            draining = await nodes.draining(db)
            updates = [
                *await deadlines.due(db, self._settings, waited_s, self._failures),
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
            lost = await nodes.lost(db) if seen.lost else ()
            unfinished = await losses.left_over(db, lost) if self._judges else ()
        lost_for_s = self._losses.for_s({node.id: node.heard for node in lost}, self._clock.monotonic())
        self.gone = {id_ for id_, lost_s in lost_for_s.items() if lost_s >= self._settings.node_gone_s}
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
        silent_for_s = self._silence.for_s(counts, moment)
        if not self._judges:
            return {}
        return {id_: counts[id_] for id_, silent_s in silent_for_s.items() if silent_s >= self._settings.node_lost_s}

    async def _waited_s(self, seen: Glance) -> Mapping[UUID, float]:
        """Return for how long each session that has its places made no step forward."""
        steps: Mapping[UUID, datetime] = {}
        if seen.unstarted:
            async with self._database.reading() as db:
                steps = await lifecycle.unstarted(db)
        moved = {id_: since - self._steps.total for id_, since in steps.items()}
        return self._steps_forward.for_s(moved, self._clock.monotonic())

    async def _forget_old(self, at: datetime) -> None:
        """Delete what is kept no longer; one look in a while is enough."""
        if self._tidied + TIDY_S <= self._clock.monotonic():
            self._tidied = self._clock.monotonic()
            await retention.apply(self._database, self._settings, at)

    async def _count_spare(self, at: datetime) -> None:
        """Count what projects have of what is spare, where it is to matter later."""
        half_life_s, moment = self._settings.spare_half_life_s, self._clock.monotonic()
        if half_life_s and self._spare_counted + spare_had.COUNT_S <= moment:
            self._spare_counted = moment
            async with self._database.transaction() as db:
                await spare_had.count(db, at, half_life_s)

    def _may_judge(self) -> bool:
        """Return whether silence means anything: after a start and after a stall every agent has time to be heard."""
        moment = self._clock.monotonic()
        if moment - self._looked > max(STALL_S, self._settings.node_lost_s / 2):
            self._began = moment
            self._silence, self._losses = Unchanged(), Unchanged()
        self._looked = moment
        return moment - self._began >= self._settings.node_lost_s + SLACK_S
