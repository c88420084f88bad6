"""The scheduler's loop: reads a snapshot from the database, lets it be decided, and writes the decision back.

A cycle is left out where nothing has changed since the last one, so that an idle cluster and a full one cost little.
What does not change is not read again either: the nodes, and the sessions that run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.control.reconcilers.failures import OUTAGES, Failures
from api.control.residents import Residents
from api.database import Begin, Database
from api.resources.groups import service as groups
from api.resources.groups.permissions import Permissions
from api.resources.nodes import traits
from api.resources.nodes.fleet import Fleet
from api.resources.projects import service as projects
from api.resources.sessions import networks, scheduling, time_limits
from api.resources.sessions import service as sessions
from api.resources.sessions.leases import whole_cores
from api.resources.sessions.mounts import storages_of
from api.resources.sessions.scheduling import Asked, PendingReasonUpdate, Placed
from api.scheduler.decide import decide, failing
from api.scheduler.draft import HOUR
from api.scheduler.pending_reasons import OF_OTHERS
from api.scheduler.planner import Planner
from api.scheduler.snapshot import (
    Bounds,
    Decision,
    Placement,
    ProjectState,
    Running,
    SchedulerSettings,
    Snapshot,
    Workload,
)
from api.settings import Launching, Settings
from api.tables.projects import Access, Expiry, Project
from api.tables.sessions import State
from common.errors import UnavailableError
from common.gang_networks import capacity
from common.gpu.kinds import Enforcement
from common.topology import TopologyLevel

log = structlog.get_logger()

SECOND = 1_000_000
NOT_ACTIVE = "not-active"
"""Why a session waits whose project is outside its period; the decision knows nothing of it."""
READ, PLACE = "to read what it asks for", "to find it a place"
NO_NETWORK = "no-network"
"""Why a session of several containers waits for which there are places, but no network; the decision knows of none."""


@dataclass(frozen=True)
class DecidedCycle:
    """One that has run: what was seen and what was decided."""

    snapshot: Snapshot
    decision: Decision


@dataclass(frozen=True)
class _Read:
    """A snapshot, and the rows that it was made from."""

    snapshot: Snapshot
    queue: Sequence[Asked]
    outside: Sequence[PendingReasonUpdate]
    names: dict[UUID, str]

    def singly(self) -> Iterator[tuple[UUID, _Read]]:
        """Yield it with one alone of the sessions that wait, for each of these."""
        for row in self.queue:
            yield row.id, replace(self, queue=[row], outside=[])
        for update in self.outside:
            yield update.session_id, replace(self, queue=[], outside=[update])


class Loop:
    """Keeps what it has read between the cycles; only the leader runs it."""

    def __init__(self, database: Database, settings: Settings, failures: Failures | None = None) -> None:
        """Start with nothing read; `failures` are counted with those of others."""
        self._failures = failures or Failures()
        self._database = database
        self._gang_networks = settings.gang_networks
        self._storages = settings.storages
        self._lends_cores = settings.engine is Launching.SLURM
        self._scheduler_settings = SchedulerSettings(
            min_runtime_s=settings.min_runtime_s,
            reserve_after_s=settings.reserve_after_s,
            strict_order_after_s=settings.strict_order_after_s,
            consolidation=settings.consolidation,
            moves_per_hour=settings.moves_per_hour,
            moves_per_session=settings.moves_per_session,
        )
        self._fleet = Fleet()
        self._planner: Planner | None = None
        self._residents = Residents()
        self._moves: Counter[UUID] = Counter()
        self._moved_at: dict[UUID, int] = {}
        self._token: object = None
        self._due = 0
        self._again = False
        self._unreadable: set[UUID] = set()
        self._nominated: tuple[str, ...] = ()
        self._said: frozenset[str] = frozenset()
        self.last: DecidedCycle | None = None
        self.reservations: Mapping[UUID, Sequence[Placement]] | None = None
        """The places that are kept for sessions that wait, by session; None until this process has looked."""

    async def run(self, begin: Begin | None = None) -> int:
        """Serve the queue once, where there is anything new to it; returns how many sessions got their places.

        `begin` gives the transaction in which that is written: a leader's own fails where it was deposed meanwhile.
        """
        moment = now()
        async with self._database.reading() as db:
            look = await scheduling.look(db, moment)
            if not look.waiting:
                self.rest()
                return 0
            known = {project.id: project for project in await projects.every(db)}
            news = await self._residents.look(db, look.horizon, {id_: _limits(each) for id_, each in known.items()})
            token = (look.waiting, *(_told_apart(project, moment) for project in known.values()))
            token = (*token, await self._fleet.refresh(db))
            if not news and token == self._token and micros(moment) < self._due:
                return 0
            self._again, self._token = False, None
            read = await self._read(db, moment)
        begin = begin or self._database.transaction
        await self._end_unreadable(begin)
        if read is None:
            return 0
        decision = await self._decision(read.snapshot, begin)
        placed = await self._apply(read, decision, begin)
        self._say(decision)
        self.reservations = {UUID(id_): places for id_, places in decision.reservations.items()}
        self._nominated = decision.nominated
        self._token, self._due = None if self._again else token, self._next(read.snapshot)
        self.last = DecidedCycle(read.snapshot, decision)
        return placed

    def withhold(self, reasons: Mapping[str, str]) -> None:
        """Give away nothing more of nodes that their launcher does not lend, for these reasons."""
        self._fleet.withhold(reasons)

    def rest(self) -> None:
        """Note that nothing waits: no places are kept then, and none are made."""
        self.reservations, self._nominated = {}, ()

    async def last_cycle(self) -> DecidedCycle:
        """Return the last cycle; where this process has run none, what it would decide now, which changes nothing."""
        if self.last:
            return self.last
        _, snapshot = await self.apart()
        return DecidedCycle(snapshot, await asyncio.to_thread(decide, snapshot))

    async def apart(self) -> tuple[Loop, Snapshot]:
        """Return one that has read what is so now, and what it saw: with what this one keeps for those that wait.

        Raises UnavailableError where a session cannot be read.
        """
        moment = now()
        # with nothing kept: what this one keeps is the leader's, and others may ask at the same time
        other = copy(self)
        other._fleet, other._residents, other._moves = self._fleet.anew(), Residents(), self._moves.copy()
        other._failures, other._unreadable, other._moved_at = Failures(), set(), dict(self._moved_at)
        async with self._database.reading() as db:
            await other._fleet.refresh(db)
            await other._residents.look(db, 0, {})
            read = await other._read(db, moment)
        if read is None:
            raise UnavailableError("the scheduler fails at a session", hint="look into the log of the API")
        return other, read.snapshot

    async def workloads(self, db: AsyncSession, ids: Collection[UUID]) -> list[Workload]:
        """Return the workloads of sessions that a transaction has made; those that cannot be read are left out."""
        known = {project.id: project for project in await projects.every(db)}
        rows = await scheduling.asked(db, ids)
        return list(self._workloads(rows, known, await groups.permissions(db)).values())

    async def _read(self, db: AsyncSession, moment: datetime) -> _Read | None:
        """Return a snapshot without those that wait and cannot be read; None where one that runs cannot be."""
        waiting = await scheduling.pending(db, moment)
        # The projects are read last, so that none of these sessions is of one that came later.
        known = {project.id: project for project in await projects.every(db)}
        permissions = await groups.permissions(db)
        pending = [row for row in waiting if row.project_id in known]
        active = [row for row in pending if projects.is_active(known[row.project_id], moment)]
        outside = list(_outside(pending, known, moment))
        if not await self._read_running(db, known, permissions):
            return None
        self._forget_moves({*self._residents.ids, *(row.id for row in waiting)})
        queue = self._workloads(active, known, permissions)
        snapshot = Snapshot(
            now=micros(moment),
            nodes=self._fleet.nodes,
            projects=tuple(_project(project, moment) for project in known.values()),
            running=self._residents.running,
            queue=tuple(queue.values()),
            settings=self._scheduler_settings,
            reservations={str(id_): tuple(places) for id_, places in (self.reservations or {}).items()},
            nominated=self._nominated,
        )
        names = {id_: project.name for id_, project in known.items()}
        return _Read(snapshot, [row for row in active if row.id in queue], outside, names)

    async def _read_running(self, db: AsyncSession, known: Mapping[UUID, Project], permissions: Permissions) -> bool:
        """Read those of the sessions that hold places which have changed since they were read; returns whether it can.

        What the others hold would be given away.
        """
        changed = self._residents.unread
        rows = [row for row in await scheduling.asked(db, changed) if row.project_id in known] if changed else []
        # Read after the revisions: a change in between is noticed by the next cycle.
        places = await scheduling.places(db, changed) if changed else {}
        workloads = self._workloads(rows, known, permissions)
        if len(workloads) < len(rows):
            return False
        found = {}
        for row in rows:
            since = row.started_at or row.scheduled_at or row.created_at
            terminating = row.state is State.TERMINATING
            ends_at = _ends_at(row, known[row.project_id])
            running = Running(workloads[row.id], places.get(row.id, ()), micros(since), terminating, ends_at)
            found[row.id] = row.revision, running
        self._residents.read(found)
        return True

    def _forget_moves(self, live: Collection[UUID]) -> None:
        """Forget how often sessions were moved that are no more."""
        for id_ in self._moves.keys() - live:
            del self._moves[id_], self._moved_at[id_]

    def _workloads(
        self, rows: Sequence[Asked], known: Mapping[UUID, Project], permissions: Permissions
    ) -> dict[UUID, Workload]:
        """Return the workloads of sessions, without those at which that fails."""
        found = {}
        for row in rows:
            try:
                found[row.id] = self._workload(row, known[row.project_id], permissions)
            except Exception as error:
                self._again = True
                if self._failures.note(READ, row.id, error):
                    self._unreadable.add(row.id)
            else:
                self._failures.forget(READ, row.id)
        return found

    def _workload(self, row: Asked, project: Project, permissions: Permissions) -> Workload:
        allowed, grouped_only = permissions.allowed(row.user_id, project, row.kind, row.group or None)
        return Workload(
            id=str(row.id),
            project=project.name,
            submitted_at=micros(max(row.created_at, row.starts_at or row.created_at)),
            name=row.name,
            replicas=row.replicas,
            gpu_milli=row.gpu_milli,
            cpu_milli=whole_cores(row.cpu_milli) if self._lends_cores else row.cpu_milli,
            memory_mib=row.memory_mib,
            preemptible=row.preemptible,
            priority=row.priority,
            groups=allowed,
            grouped_only=grouped_only,
            gpu_models=self._fleet.gpu_models_of(row.gpu_models) if row.gpu_models else (),
            within=TopologyLevel(row.within),
            within_required=row.within_required,
            enforcement=Enforcement(row.enforcement),
            storages=storages_of(row.mounts, self._storages),
            traits=traits.needed(p2p=row.p2p, rdma=row.rdma),
            protocol=row.protocol,
            held_milli=row.held_milli,
            requeued_at=micros(row.since) if row.attempt and row.state is State.PENDING else 0,
            private=row.access is Access.PRIVATE,
            limit_s=time_limits.limit_s(row.limit_s, row.kind, project),
            moves=self._moves[row.id],
            moved_at=self._moved_at.get(row.id, 0),
        )

    async def _end_unreadable(self, begin: Begin) -> None:
        while self._unreadable:
            await self._end(begin, self._unreadable.pop(), READ)

    async def _end(self, begin: Begin, session_id: UUID, what: str) -> None:
        async with begin() as db:
            for session in (await sessions.by_ids(db, [session_id])).values():
                await self._failures.end(db, session, what)

    async def _decision(self, snapshot: Snapshot, begin: Begin) -> Decision:
        """Return what is decided; where that fails too often, the session at which it fails is ended."""
        try:
            decision = await asyncio.to_thread(self._decide, snapshot)
        except Exception as error:
            # it may have taken over one half of a change
            self._planner = None
            if self._failures.note(PLACE, "", error) and (found := await asyncio.to_thread(failing, snapshot)):
                await self._end(begin, UUID(found), PLACE)
            raise
        self._failures.forget(PLACE, "")
        return decision

    def _decide(self, snapshot: Snapshot) -> Decision:
        changes = self._residents.take_changes()
        if self._planner is None:
            self._planner = Planner.of(snapshot)
        else:
            self._planner.follow(snapshot, changes)
        return self._planner.decide(
            snapshot.queue, snapshot.now, snapshot.settings, snapshot.reservations, snapshot.nominated
        )

    async def _apply(self, read: _Read, decision: Decision, begin: Begin) -> int:
        """Write what was decided, and where that fails one by one: a session at which it fails too often is ended."""
        try:
            return await self._write(read, decision, begin)
        except OUTAGES:
            raise
        except Exception:
            log.exception("the decision is written one by one")
        placed = 0
        for session_id, part in read.singly():
            try:
                placed += await self._write(part, _only(decision, str(session_id)), begin)
            except OUTAGES:
                raise
            except Exception as error:
                if self._failures.note(PLACE, session_id, error):
                    await self._end(begin, session_id, PLACE)
            else:
                self._failures.forget(PLACE, session_id)
        self._again = True
        return placed

    async def _write(self, read: _Read, decision: Decision, begin: Begin) -> int:
        """Write what was decided; whatever has changed since it was read is left to the next cycle."""
        placed = {
            row.id: Placed(row.revision, decision.placements[str(row.id)])
            for row in read.queue
            if str(row.id) in decision.placements
        }
        updates = [*self._pending_reasons(read.queue, decision), *read.outside]
        if not (placed or updates or decision.reclaims):
            return 0
        async with begin() as db:
            # The nodes before the sessions, as who deletes a node locks them.
            possible = await self._on_known_nodes(db, placed)
            await self._reclaim(db, read, decision)
            gangs = [id_ for id_, each in possible.items() if len(each.placements) > 1]
            free = await networks.free(db, len(gangs), self._gang_networks) if gangs else []
            short = [(id_, possible.pop(id_)) for id_ in gangs[len(free) :]]
            updates += _without_network(read.queue, dict(short), capacity(self._gang_networks))
            # nothing that is read says when a network is free again
            self._again |= bool(short)
            await scheduling.note_pending_reasons(db, updates)
            return await scheduling.start(db, possible, self._fleet.ids, dict(zip(gangs, free, strict=False)))

    async def _on_known_nodes(self, db: AsyncSession, placed: Mapping[UUID, Placed]) -> dict[UUID, Placed]:
        """Leave out what would come to a node that has been deleted; the others stay until the transaction ends."""
        ids = self._fleet.ids
        wanted = {id_: {ids[place.node] for place in each.placements} for id_, each in placed.items()}
        there = await scheduling.lock_nodes(db, set[UUID]().union(*wanted.values()))
        return {id_: each for id_, each in placed.items() if wanted[id_] <= there}

    async def _reclaim(self, db: AsyncSession, read: _Read, decision: Decision) -> None:
        beneficiaries = {str(row.id): row for row in read.queue}
        for reclaim in sorted(decision.reclaims, key=lambda item: item.victim):
            victim = UUID(reclaim.victim)
            revision, running = self._residents[victim]
            row = beneficiaries[reclaim.beneficiary]
            whom = _told(row, read.names[row.project_id], running.workload.project)
            what = "moved" if reclaim.moved else "reclaimed"
            if await sessions.reclaim(db, victim, revision, f"{what} for {whom}: {reclaim.reason}") and reclaim.moved:
                self._moves[victim] += 1
                self._moved_at[victim] = read.snapshot.now

    def _pending_reasons(self, queue: Sequence[Asked], decision: Decision) -> Iterable[PendingReasonUpdate]:
        """Yield the new pending reasons."""
        for row in queue:
            pending = decision.pending_reasons.get(str(row.id))
            if pending and (pending.reason, pending.cause, pending.position) != (row.reason, row.cause, row.position):
                yield PendingReasonUpdate(row.id, row.revision, pending.reason, str(pending.cause), pending.position)

    def _say(self, decision: Decision) -> None:
        """Log each decision once, not again while it stays the same."""
        for line in decision.log:
            if line not in self._said:
                log.info("decision", decision=line)
        self._said = frozenset(decision.log)

    def _next(self, snapshot: Snapshot) -> int:
        """Return when time alone may change the decision: somebody has run, or has waited, for long enough."""
        named: dict[str, ProjectState | None] = {project.name: project for project in snapshot.projects}
        least = {name: snapshot.settings.least_runtime_s(each) * SECOND for name, each in named.items()}
        running = [item for item in snapshot.running if not item.terminating] if any(least.values()) else []
        ran = [item.since + least.get(item.workload.project, 0) for item in running]
        patience = snapshot.settings.reserve_after_s, snapshot.settings.strict_order_after_s
        waited = [item.waiting_since + seconds * SECOND for item in snapshot.queue for seconds in patience]
        allowed = [moved_at + HOUR for moved_at in self._moved_at.values()]
        return min(
            (moment for moment in (*ran, *waited, *allowed) if moment > snapshot.now), default=snapshot.now + 2**60
        )


def _only(decision: Decision, name: str) -> Decision:
    """Return what was decided for one of the sessions that wait."""
    placements = {name: decision.placements[name]} if name in decision.placements else {}
    reclaims = tuple(reclaim for reclaim in decision.reclaims if reclaim.beneficiary == name)
    pending_reasons = {name: decision.pending_reasons[name]} if name in decision.pending_reasons else {}
    return replace(decision, placements=placements, reclaims=reclaims, pending_reasons=pending_reasons)


def micros(moment: datetime) -> int:
    """Return a moment as whole microseconds."""
    return round(moment.timestamp() * SECOND)


def _told_apart(project: Project, moment: datetime) -> tuple[object, ...]:
    """Return what of a project a decision depends on."""
    return _project(project, moment), projects.is_active(project, moment), *_affinity(project), *_limits(project)


def _project(project: Project, moment: datetime) -> ProjectState:
    """Return a project as it is now: outside its period nothing is guaranteed to it."""
    is_active = projects.is_active(project, moment)
    return ProjectState(
        name=project.name,
        quota_milli=projects.quota_at(project, moment),
        over_quota=project.over_quota,
        weight=project.over_quota_weight,
        min_runtime_s=project.min_runtime_s,
        limit_milli=project.limit_milli,
        cpu=_bounds(project.cpu_quota_milli, project.cpu_limit_milli, is_active=is_active),
        memory=_bounds(project.memory_quota_mib, project.memory_limit_mib, is_active=is_active),
    )


def _bounds(quota: int | None, limit: int | None, *, is_active: bool) -> Bounds | None:
    return None if quota is None else Bounds(quota if is_active else 0, limit)


def _told(row: Asked, project: str, reader: str) -> str:
    """Return how people of a project, the reader, are told of a session of a project."""
    if project != reader:
        return OF_OTHERS
    return f"a private session of {project}" if row.access is Access.PRIVATE else f"{project}/{row.name}"


def _ends_at(row: Asked, project: Project) -> int:
    """Return when a session is stopped at the latest, by its time limit or its project's period; 0 if never.

    The time of one that is still on its way to run begins when it does: until then it is told as if it did already.
    """
    period = project.ends_at if project.on_expiry is Expiry.STOP else None
    limit = timedelta(seconds=time_limits.limit_s(row.limit_s, row.kind, project))
    expires_at = row.expires_at or (row.scheduled_at + limit if limit and row.scheduled_at else None)
    return min((micros(moment) for moment in (expires_at, period) if moment), default=0)


def _affinity(project: Project) -> tuple[str | None, str | None]:
    return project.training_group, project.interactive_group


def _limits(project: Project) -> tuple[object, ...]:
    """Return what ends the sessions of a project."""
    return project.ends_at, project.on_expiry, project.interactive_limit_s


def _outside(rows: Iterable[Asked], known: Mapping[UUID, Project], moment: datetime) -> Iterable[PendingReasonUpdate]:
    """Yield the new pending reasons of those whose project is outside its period."""
    for row in rows:
        project = known[row.project_id]
        if projects.is_active(project, moment):
            continue
        ended = project.ends_at if project.ends_at and project.ends_at <= moment else None
        what = f"ended at {ended:%Y-%m-%d %H:%M}" if ended else f"begins at {project.starts_at:%Y-%m-%d %H:%M}"
        reason = f"the period of {project.name} {what} UTC; an administrator may change that"
        if (row.reason, row.cause) != (reason, NOT_ACTIVE):
            yield PendingReasonUpdate(row.id, row.revision, reason, NOT_ACTIVE, 0)


def _without_network(
    rows: Iterable[Asked], short: Mapping[UUID, Placed], capacity: int
) -> Iterable[PendingReasonUpdate]:
    """Yield the new pending reasons of those who have places and no network between their containers."""
    reason = f"all {capacity} networks between containers of a session are taken; an administrator may give more room"
    for row in rows:
        if row.id in short and (row.reason, row.cause) != (reason, NO_NETWORK):
            yield PendingReasonUpdate(row.id, row.revision, reason, NO_NETWORK, 0)
