"""Observation: what heartbeats say becomes what the database says, of nodes and of the sessions on them.

A heartbeat that says nothing new only moves `last_seen`, many nodes in one statement. What it says is looked at in full
when it is new, when the last look left something open, and once a minute whatever was missed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.control.reconcilers import follow, losses
from api.control.reconcilers.change import log_change
from api.control.reconcilers.failures import OUTAGES, Failures
from api.control.reconcilers.follow import WATCHED, after, by_our_clock
from api.control.reconcilers.orphans import Orphan, Orphans
from api.database import Database
from api.resources.health import service as health
from api.resources.nodes import service as nodes
from api.resources.nodes.heartbeats import HeardHeartbeat, Heartbeats
from api.resources.sessions import changes, networks, resizing
from api.resources.sessions import service as sessions
from api.resources.sessions.changes import Change
from api.settings import Settings
from api.tables.nodes import Node
from api.tables.sessions import Session, State
from common.protocol import ContainerState, ContainerStatus
from common.sentence import Sentence

log = structlog.get_logger()

MISSING_LIMIT = 2
"""So many heartbeats in a row must lack a container: one may have been written before it started."""
LOOK_AGAIN_S = 60
"""A node is looked at in full after so long, even if it says nothing new."""
LOOKS_AGAIN = 200
"""So many nodes at once are looked at in full for that reason: all of a large site began at the same time."""
CHUNK = 200
"""So many nodes are written in one transaction."""
UNDER_WAY = timedelta(seconds=2)
"""So long after the database was exchanged a container may still come to be that was asked for before."""

Missing = tuple[UUID, int, int]


@dataclass(frozen=True)
class _Before:
    """What went before an agent began that calls itself `boot`."""

    boot: str
    missing: frozenset[str]


class Observer:
    """Applies heartbeats in batches."""

    def __init__(self, database: Database, heartbeats: Heartbeats, settings: Settings, failures: Failures) -> None:
        """Start with nothing missing and nothing open."""
        self._failures = failures
        self._database = database
        self._heartbeats = heartbeats
        self._missing: dict[Missing, frozenset[datetime]] = {}
        self._before: dict[str, _Before] = {}
        self._open: set[str] = set()
        self._looked: dict[str, float] = {}
        self._settings = settings
        self._orphans = Orphans(settings.unknown_containers_keep_s)
        self._this_database, self._known_since = "", datetime.min.replace(tzinfo=UTC)

    def look_at(self, name: str) -> None:
        """Look at a node's next heartbeat in full: something was begun there of which the last one could not tell."""
        self._open.add(name)

    async def apply(self) -> list[Orphan]:
        """Write what has come in since the last call; returns the containers that nobody wants.

        What could not be written because of an outage of the database is kept for the next call.
        """
        left = self._heartbeats.take()
        if not left:
            return []
        orphans: list[Orphan] = []
        try:
            due = self._due(left)
            plain = [report for report in left if not self._is_news(report) and report.heartbeat.name not in due]
            known = await self._note_alive(plain)
            left = [report for report in left if report.heartbeat.name not in known]
            while left:
                orphans += await self._look_at_all(left[:CHUNK])
                left = left[CHUNK:]
        except OUTAGES:
            self._heartbeats.give_back(left)
            raise
        return orphans

    async def _look_at_all(self, reports: Sequence[HeardHeartbeat]) -> list[Orphan]:
        try:
            return await self._look(reports)
        except OUTAGES:
            raise
        except Exception:
            log.exception("heartbeats are looked at one by one", reports=len(reports))
            return await self._look_singly(reports)

    def _is_news(self, report: HeardHeartbeat) -> bool:
        name = report.heartbeat.name
        return report.news or name in self._open or name not in self._looked

    def _due(self, reports: Sequence[HeardHeartbeat]) -> list[str]:
        """Return which nodes are looked at in full again: where it is time for one, all whose time comes soon."""
        moment = time.monotonic()
        looked = {name: self._looked[name] for report in reports if (name := report.heartbeat.name) in self._looked}
        if not any(at + LOOK_AGAIN_S < moment for at in looked.values()):
            return []
        return [name for name, at in looked.items() if at + LOOK_AGAIN_S / 2 < moment][:LOOKS_AGAIN]

    async def _note_alive(self, reports: Sequence[HeardHeartbeat]) -> Collection[str]:
        """Return the nodes of which no more needs to be written; a lost or deleted one is not among them."""
        if not reports:
            return ()
        try:
            async with self._database.statements() as db:
                return await nodes.note_alive(db, {report.heartbeat.name: report.received_at for report in reports})
        except OUTAGES:
            raise
        except Exception as error:
            log.exception("signs of life are noted one by one", reason=str(error))
            return ()

    async def _look(self, reports: Sequence[HeardHeartbeat], *, singly: bool = False) -> list[Orphan]:
        async with self._database.transaction() as db:
            orphans, still_open = await self._apply(db, reports, singly=singly)
        names = {report.heartbeat.name for report in reports}
        self._open = self._open - names | still_open
        self._looked |= dict.fromkeys(names, time.monotonic())
        return orphans

    async def _look_singly(self, reports: Sequence[HeardHeartbeat]) -> list[Orphan]:
        """Leave out the heartbeat that cannot be written, whatever it is, so that no agent silences all others."""
        orphans: list[Orphan] = []
        for report in reports:
            try:
                orphans += await self._look([report], singly=True)
            except OUTAGES:
                raise
            except Exception as error:
                log.exception("heartbeat refused", node=report.heartbeat.name, reason=str(error))
                # whether or not the next one says anything new
                self.look_at(report.heartbeat.name)
        return orphans

    async def _apply(
        self, db: AsyncSession, reports: Sequence[HeardHeartbeat], *, singly: bool
    ) -> tuple[list[Orphan], set[str]]:
        """Return the orphans, and the names of the nodes that have to be looked at again.

        With `singly` one session at which it fails hinders no other: that takes more statements.
        """
        alone = self._failures.alone if singly else _as_it_is
        known, returned = await nodes.record(db, reports, self._since)
        checks = {known[report.heartbeat.name].id: report.heartbeat.checks for report in reports}
        await health.record(db, self._settings, checks, {node.id: node for node in known.values()})
        watched = await sessions.of_nodes(db, {node.id for node in known.values()}, WATCHED)
        live = _by_node(watched)
        found = await self._orphans.sort(db, known, reports, returned, watched)
        still_open = {orphan.target.name for orphan in found.orphans}
        for report in reports:
            node = known[report.heartbeat.name]
            containers = {container.id: container for container in report.heartbeat.containers}
            self._compare(node, report.heartbeat.boot, containers, live.get(node.id, ()))
            for session in live.get(node.id, ()):
                settled = False
                async with alone(db, session, Sentence("to follow its containers")):
                    settled = await self._follow(db, session, node, containers, report)
                if not settled:
                    still_open.add(node.name)
        offsets = {report.heartbeat.name: report.clock_offset_s for report in reports}
        for left in found.left_running:
            async with alone(db, left.session, Sentence("to give it its containers back")):
                offset_s = offsets[left.node.name]
                running = {rank: by_our_clock(item, offset_s) for rank, item in left.containers.items()}
                await losses.adopt(db, replace(left, containers=running), now())
        await losses.after_return(db, [known[name] for name in returned], self._failures)
        await _free_networks(db, {known[report.heartbeat.name].id: report for report in reports})
        return found.orphans, still_open

    def _since(self, this: str) -> datetime:
        """Return from when on agents have spoken to this database: what this one heard itself began with its start."""
        if this != self._this_database:
            if self._this_database:
                self._known_since = now() + UNDER_WAY
            self._this_database = this
        return self._known_since

    def _compare(self, node: Node, boot: str, containers: Container[str], live: Sequence[Session]) -> None:
        """Note which containers an agent does not find that has just begun: it saw none of them go."""
        if node.name in self._before and self._before[node.name].boot == boot:
            return
        running = [session for session in live if session.state is State.RUNNING]
        ids = {
            session.container_id(container.rank)
            for session in running
            for container in session.containers
            if container.node_id == node.id
        }
        self._before[node.name] = _Before(boot, frozenset(id_ for id_ in ids if id_ not in containers))

    async def _follow(
        self,
        db: AsyncSession,
        session: Session,
        node: Node,
        containers: dict[str, ContainerState],
        report: HeardHeartbeat,
    ) -> bool:
        """Write what a node says of one of its sessions; returns whether that is all there is to it."""
        here = [container for container in session.containers if container.node_id == node.id]
        # what is being removed may end as it likes, and is gone when its agent says so to who removes it
        ranks = [container.rank for container in here if not container.leaving]
        found = {rank: containers.get(session.container_id(rank)) for rank in ranks}
        seen = {rank: by_our_clock(item, report.clock_offset_s) for rank, item in found.items() if item is not None}
        missing = [rank for rank, container in found.items() if container is None]
        for rank in seen:
            self._missing.pop((session.id, session.attempt, rank), None)
        values, noted = after(session, seen, report.received_at)
        gone = [rank for rank in missing if self._is_gone(session, rank, report)]
        for rank in [rank for rank in gone if follow.is_new(session, rank)]:
            noted[rank] = {"leaving": True}
            gone.remove(rank)
        if gone and session.state is State.RUNNING and "state" not in values:
            unseen = {session.container_id(rank) for rank in gone} & self._before[node.name].missing
            values = follow.gone(session, node.name, while_away=bool(unseen))
        elif gone and session.state is State.PREPARING:
            # an agent that was restarted knows nothing of a launch that Docker had no container for yet
            noted |= {rank: {"status": None} for rank in gone}
        if not values:
            parts = [(item, seen[item.rank].gpus) for item in session.containers if item.rank in seen]
            await resizing.notice(db, session, parts)
        return await self._note(db, session, values, noted) and not missing

    def _is_gone(self, session: Session, rank: int, report: HeardHeartbeat) -> bool:
        """Return whether a container that was there is not any more."""
        container = next(item for item in session.containers if item.rank == rank)
        there_since = session.since if session.state is State.PREPARING else session.started_at
        if container.rank >= session.min_replicas > 0 and session.state is State.RUNNING:
            there_since = session.replicas_at or there_since
        if container.status in (None, ContainerStatus.EXITED) or there_since is None:
            return False
        if report.received_at <= there_since:
            return False
        key = (session.id, session.attempt, rank)
        # A heartbeat that could not be written is looked at again: it counts once all the same.
        heard = self._missing[key] = self._missing.get(key, frozenset()) | {report.received_at}
        if len(heard) < MISSING_LIMIT:
            return False
        del self._missing[key]
        return True

    async def _note(
        self, db: AsyncSession, session: Session, values: dict[str, Any], noted: dict[int, dict[str, Any]]
    ) -> bool:
        """Write what is new; returns whether it is written, which it is not if somebody else was faster."""
        if not (values or any(noted.values())):
            return True
        change = Change.of(session, values, noted)
        if not await changes.write(db, [change]):
            return False
        change.take_over()
        if values:
            log_change(session, values)
        return True


@asynccontextmanager
async def _as_it_is(_db: AsyncSession, _session: Session, _what: str) -> AsyncIterator[None]:
    """Let what fails hinder all else."""
    yield


async def _free_networks(db: AsyncSession, reports: Mapping[UUID, HeardHeartbeat]) -> None:
    """Let go of the networks of attempts that are over, where their nodes say that no container is left."""
    for left in await networks.left(db, reports):
        report = reports[left.node_id]
        is_later = left.since is None or report.received_at > left.since
        if is_later and not any(left.is_of(container.id) for container in report.heartbeat.containers):
            await networks.leave(db, left.number, [left.node_id])


def _by_node(live: Iterable[Session]) -> dict[UUID, list[Session]]:
    found: defaultdict[UUID, list[Session]] = defaultdict(list)
    for session in live:
        for node in session.nodes:
            found[node.id].append(session)
    return found
