"""The scheduler's loop: reads a snapshot from the database, lets it be decided, and writes the decision back.

A cycle is left out where nothing has changed since the last one, so that an idle cluster and a full one cost little.
What does not change is not read again either: the nodes, and the sessions that run.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.control.cycles import GROW, PLACE, DecidedCycle, Read, Rounds, next_change, say, singly
from api.control.decider import Decider
from api.control.project_states import (
    ends_at_latest,
    micros,
    rules_of,
    told_apart,
    with_members,
)
from api.control.reconcilers.failures import OUTAGES, Failures
from api.control.residents import Residents
from api.control.waits import decided, outside, stopped, told, unplanned, without_network
from api.database import Begin, Database
from api.resources.domains.states import sharing
from api.resources.groups import service as groups
from api.resources.groups.permissions import Permissions
from api.resources.nodes import traits
from api.resources.nodes.fleet import Fleet
from api.resources.projects import service as projects
from api.resources.projects.states import project_state
from api.resources.sessions import elastic, networks, scheduling, time_limits
from api.resources.sessions import service as sessions
from api.resources.sessions.leases import whole_cores
from api.resources.sessions.mounts import storages_of
from api.resources.sessions.scheduling import Asked, Placed
from api.scheduler.claims import Claim
from api.scheduler.decide import decide
from api.scheduler.snapshot import Cause, Decision, Placement, Running, SchedulerSettings, Snapshot, Workload
from api.settings import Launching, Settings
from api.tables.projects import Access, Project
from api.tables.sessions import State
from common.checks import Check
from common.errors import UnavailableError
from common.gang_networks import capacity
from common.gpu.kinds import Enforcement
from common.sentence import Sentence
from common.topology import TopologyLevel

log = structlog.get_logger()

READ = Sentence("to read what it asks for")


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
        self._is_aged = settings.spare_half_life_s > 0
        self._fleet = Fleet()
        self._decider = Decider(self._failures)
        self._residents = Residents()
        self._token: object = None
        self._due = 0
        self._again = self._lacks_network = False
        self._rounds = Rounds()
        self._unreadable: set[UUID] = set()
        self._nominated: tuple[str, ...] = ()
        self._said: frozenset[str] = frozenset()
        self.last: DecidedCycle | None = None
        self.reservations: Mapping[UUID, Sequence[Placement]] | None = None
        """The places that are kept for sessions that wait, by session; None until this process has looked."""
        self.claims: Sequence[Claim] = ()
        """What the last decision kept for them, places and quota."""

    async def run(self, begin: Begin | None = None) -> int:
        """Serve the queue once, where there is anything new to it; returns how many sessions got their places.

        `begin` gives the transaction in which that is written: a leader's own fails where it was deposed meanwhile.
        """
        moment = now()
        async with self._database.reading() as db:
            look = await scheduling.look(db, moment)
            if not (look.waiting or look.growing):
                self.rest()
                return 0
            known = {project.id: project for project in await projects.every(db)}
            fleet = await self._fleet.refresh(db)
            rules = self._fleet.rights, {id_: rules_of(each) for id_, each in known.items()}
            news = await self._residents.look(db, look.horizon, rules)
            apart: list[object] = [told_apart(project, moment, aged=self._is_aged) for project in known.values()]
            token = (
                look.waiting,
                look.growing,
                *apart,
                *await sharing(db, known.values()),
                fleet,
                await networks.taken(db) if self._lacks_network else None,
            )
            is_new = bool(news) or token != self._token or micros(moment) >= self._due or self._decider.is_due
            if not (is_new or self._rounds.go_on):
                return 0
            self._again, self._token = False, None
            read = await self._read(db, moment)
        begin = begin or self._database.transaction
        while self._unreadable:
            await self._end(begin, self._unreadable.pop(), READ)
        if read is None:
            return 0
        end = partial(self._end_unplaced, begin)
        cycle = await self._decider.decide(read.snapshot, self._residents.take_changes(), end)
        decision, failing = cycle.decision, unplanned(read.queue, self._decider.left_out)
        placed = await self._apply(replace(read, outside=[*read.outside, *failing]), decision, begin)
        if look.growing:
            async with begin() as db:
                await elastic.note_not_grown(db, {UUID(id_): why for id_, why in decision.not_grown.items()})
        self.reservations = {UUID(id_): places for id_, places in decision.reservations.items()}
        self.claims = cycle.claims
        self._nominated, self._said = decision.nominated, say(decision, self._said)
        self._rounds.note(decision.left_out, is_new=is_new)
        self._lacks_network = any(each.cause is Cause.NO_NETWORK for each in decision.pending_reasons.values())
        self._token, self._due = None if self._again else token, next_change(read.snapshot)
        self.last = cycle
        return placed

    def rest(self) -> None:
        """Note that nothing waits: places are kept then for nobody but who is being moved, and none are made."""
        waited = self.last.decision.pending_reasons if self.last else {}
        kept = (self.reservations or {}).items()
        self.reservations = {id_: places for id_, places in kept if str(id_) not in waited}
        self.claims = tuple(claim for claim in self.claims if claim.workload.id not in waited)
        self._nominated, self._rounds = tuple(id_ for id_ in self._nominated if id_ not in waited), Rounds()
        self._decider.rest()

    def check(self) -> Check:
        """Return whether decisions are made, on all that wait."""
        return self._decider.check()

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
        other._fleet, other._residents = Fleet(), Residents()
        other._failures, other._unreadable = Failures(), set()
        async with self._database.reading() as db:
            await other._fleet.refresh(db)
            await other._residents.look(db, (await scheduling.look(db, moment)).horizon, None)
            read = await other._read(db, moment, with_networks=True)
        if read is None:
            raise UnavailableError(
                Sentence("the scheduler fails at a session"), hint=Sentence("look into the log of the API")
            )
        return other, self._decider.without_left_out(read.snapshot)

    async def workloads(self, db: AsyncSession, ids: Collection[UUID]) -> list[Workload]:
        """Return the workloads of sessions that a transaction has made; those that cannot be read are left out."""
        known = {project.id: project for project in await projects.every(db)}
        rows = await scheduling.asked(db, ids)
        return list(self._workloads(rows, known, await groups.permissions(db)).values())

    async def _read(self, db: AsyncSession, moment: datetime, *, with_networks: bool = False) -> Read | None:
        """Return a snapshot without those that wait and cannot be read; None where one that runs cannot be."""
        waiting = await scheduling.pending(db, moment)
        # The projects are read last, so that none of these sessions is of one that came later.
        known = {project.id: project for project in await projects.every(db)}
        permissions = await groups.permissions(db)
        pending = [row for row in waiting if row.project_id in known]
        active = [row for row in pending if projects.is_active(known[row.project_id], moment)]
        of_inactive = list(outside(pending, known, moment))
        if not await self._read_running(db, known, permissions):
            return None
        queue = self._workloads(active, known, permissions)
        with_networks |= any(each.needs_network for each in queue.values())
        snapshot = Snapshot(
            now=micros(moment),
            nodes=self._fleet.nodes,
            projects=tuple(project_state(project, moment, aged=self._is_aged) for project in known.values()),
            running=self._residents.running,
            queue=tuple(queue.values()),
            settings=self._scheduler_settings,
            reservations={str(id_): tuple(places) for id_, places in (self.reservations or {}).items()},
            nominated=self._nominated,
            left_out=self._rounds.left_out,
            domains=await sharing(db, known.values()),
            networks=await networks.room(db, self._gang_networks) if with_networks else None,
        )
        names = {id_: project.name for id_, project in known.items()}
        return Read(snapshot, [row for row in active if row.id in queue], of_inactive, names)

    async def _read_running(self, db: AsyncSession, known: Mapping[UUID, Project], permissions: Permissions) -> bool:
        """Read those of the sessions that hold places which have changed since they were read; returns whether it can.

        What the others hold would be given away.
        """
        changed = self._residents.unread
        rows = [row for row in await scheduling.asked(db, changed) if row.project_id in known] if changed else []
        # Read after the revisions: a change in between is noticed by the next cycle.
        places = await scheduling.places(db, changed) if changed else {}
        gangs = await elastic.members(db, [row.id for row in rows if row.max_replicas])
        workloads = self._workloads(rows, known, permissions)
        if len(workloads) < len(rows):
            return False
        found = {}
        for row in rows:
            since = row.started_at or row.scheduled_at or row.created_at
            terminating = row.state is State.TERMINATING
            ends_at = ends_at_latest(row, known[row.project_id])
            running = Running(workloads[row.id], places.get(row.id, ()), micros(since), terminating, ends_at)
            found[row.id] = row.revision, with_members(running, row, gangs.get(row.id))
        self._residents.read(found)
        return True

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
        requeued_at = row.since if row.attempt and row.state is State.PENDING else row.interrupted_at
        return Workload(
            id=str(row.id),
            project=project.name,
            submitted_at=micros(max(row.created_at, row.starts_at or row.created_at)),
            name=row.name,
            replicas=row.replicas,
            min_replicas=row.min_replicas,
            max_replicas=row.max_replicas,
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
            requeued_at=micros(requeued_at) if requeued_at else 0,
            private=row.access is Access.PRIVATE,
            limit_s=time_limits.limit_s(row.limit_s, row.kind, project),
            moves=row.moves,
            moved_at=micros(row.moved_at) if row.moved_at else 0,
        )

    async def _end(self, begin: Begin, session_id: UUID, what: str) -> None:
        async with begin() as db:
            for session in (await sessions.by_ids(db, [session_id])).values():
                await self._failures.end(db, session, what)

    async def _end_unplaced(self, begin: Begin, workload: str) -> None:
        await self._end(begin, UUID(workload), PLACE)

    async def _apply(self, read: Read, decision: Decision, begin: Begin) -> int:
        """Write what was decided, and where that fails one by one: a session at which it fails too often is ended.

        One that only fails to grow goes on as it is.
        """
        try:
            return await self._write(read, decision, begin)
        except OUTAGES:
            raise
        except Exception:
            log.exception("the decision is written one by one")
        placed, failed = 0, set[UUID]()
        for part in singly(read, decision):
            if not failed.isdisjoint(part.beneficiaries):
                continue
            try:
                placed += await self._write(part.read, part.decision, begin)
            except OUTAGES:
                raise
            except Exception as error:
                failed.update({part.session_id}, part.beneficiaries)
                if not self._failures.note(part.what, part.session_id, error):
                    continue
                if part.what is GROW:
                    self._residents.let_be(part.session_id)
                else:
                    await self._end(begin, part.session_id, part.what)
            else:
                self._failures.forget(part.what, part.session_id)
        self._again = True
        return placed

    async def _write(self, read: Read, decision: Decision, begin: Begin) -> int:
        """Write what was decided; whatever has changed since it was read is left to the next cycle."""
        placed = {
            row.id: Placed(row.revision, decision.placements[str(row.id)], decision.reach.get(str(row.id), ()))
            for row in read.queue
            if str(row.id) in decision.placements
        }
        updates = [*decided(read.queue, decision), *read.outside]
        if not (placed or updates or decision.reclaims or decision.grown):
            return 0
        async with begin() as db:
            # The nodes before the sessions, as who deletes a node locks them.
            possible = await self._on_known_nodes(db, placed)
            if decision.reclaims:
                await self._reclaim(db, read, decision)
            await self._grow(db, decision)
            gangs = [id_ for id_, each in possible.items() if len(each.placements) > 1 or each.reach]
            gangs.sort(key=list(map(UUID, decision.placements)).index)
            free = await networks.free(db, len(gangs), self._gang_networks) if gangs else []
            short = [(id_, possible.pop(id_)) for id_ in gangs[len(free) :]]
            updates += without_network(read.queue, dict(short), capacity(self._gang_networks))
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

    async def _grow(self, db: AsyncSession, decision: Decision) -> None:
        """Give elastic sessions the containers that there is room for, on nodes that there still are."""
        ids = self._fleet.ids
        wanted = {ids[place.node] for places in decision.grown.values() for place in places.values()}
        there = await scheduling.lock_nodes(db, wanted) if wanted else set()
        for id_, places in sorted(decision.grown.items()):
            if {ids[place.node] for place in places.values()} <= there:
                await elastic.grow(db, UUID(id_), self._residents[UUID(id_)][0], places, ids)

    async def _reclaim(self, db: AsyncSession, read: Read, decision: Decision) -> None:
        named = {reclaim.beneficiary for reclaim in decision.reclaims}
        rows = [row for row in read.queue if str(row.id) in named]
        beneficiaries = {str(row.id): row for row in await scheduling.unchanged(db, rows)}
        reclaims = [each for each in decision.reclaims if each.beneficiary in beneficiaries]
        shrunk: defaultdict[str, set[int]] = defaultdict(set)
        for reclaim in reclaims:
            shrunk[reclaim.victim].update(reclaim.ranks)
        for victim_id, ranks in sorted(shrunk.items()):
            if ranks:
                await elastic.give_up(db, UUID(victim_id), self._residents[UUID(victim_id)][0], ranks)
        for reclaim in sorted((each for each in reclaims if not each.ranks), key=lambda item: item.victim):
            victim = UUID(reclaim.victim)
            revision, running = self._residents[victim]
            row = beneficiaries[reclaim.beneficiary]
            whom = told(row, read.names[row.project_id], running.workload.project)
            count = {"moves": running.workload.moves + 1, "moved_at": now()} if reclaim.moved else {}
            await sessions.reclaim(db, victim, revision, stopped(reclaim, whom), **count)
