"""The manager of the reconcilers: every process writes the heartbeats it hears, one leader does all the rest."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any
from uuid import UUID

import structlog
from fastapi import Depends
from starlette.requests import HTTPConnection

from api.clock import Clock
from api.control.alert_sender import AlertSender
from api.control.audit_sender import AuditSender
from api.control.audit_writer import AuditWriter
from api.control.automatic_repair import AutomaticRepair
from api.control.directory_check import DirectoryCheck
from api.control.health_check import HealthCheck
from api.control.image_check import Checker
from api.control.leases import LeaseKeeper
from api.control.loop import Loop
from api.control.reconcilers import glance, reach, resizes
from api.control.reconcilers.failures import OUTAGES, TRIES, Failures, wait_s
from api.control.reconcilers.glance import Glance
from api.control.reconcilers.observe import Observer
from api.control.reconcilers.operate import Operator
from api.control.reconcilers.orphans import Orphan
from api.control.reconcilers.timed import TimedReconciler
from api.control.retries import NEVER, Retries
from api.control.volume_keeper import VolumeKeeper
from api.database import Begin, Database
from api.engine.base import Engine
from api.engine.launcher import Launcher
from api.engine.launchers import launcher_of
from api.resources.audit import service as audit
from api.resources.installation import service as installation
from api.resources.nodes import service as nodes
from api.resources.nodes.heartbeats import Heartbeats
from api.resources.sessions import lifecycle
from api.settings import Settings
from api.tables.sessions import Session, State
from common import request_id
from common.errors import PenstockError, UnavailableError
from common.sentence import Sentence

log = structlog.get_logger()

TICK_S = 1.0
ALIVE_S = 4.0
ALIVE_PART = 0.8
"""Signs of life are written so often, and in this part of the time between two: none seems silent that is not."""
GATHER_S = 0.02
"""So long what comes is gathered before it is looked at: many at once cost little more than one."""
ORPHAN_GRACE_S = 5
MAX_STARTS = MAX_STOPS = MAX_CHANGES = 200
"""So many sessions are started, stopped and given other shares at once, each with places of their own: a thousand that
are stopped, or whose nodes hang, keep nobody from starting. The others wait for their turn."""

DOING = {
    State.SCHEDULED: Sentence("to start its containers"),
    State.PREPARING: Sentence("to start its containers"),
    State.RUNNING: Sentence("to change its share"),
    State.TERMINATING: Sentence("to remove its containers"),
}
"""What an operation does to a session in each state."""
MAX_FAILURES = 3 * TRIES
"""More in a row than it takes to withdraw a share and to end its session."""
PART, ORPHANS = Sentence("to do a part of its work"), "to remove an orphaned container"


class Manager:
    """Runs until it is cancelled; `wake` makes the leader look at once.

    What it does again and again can be done once: `observe`, then `reconcile`, and what `operations` shows is awaited.
    """

    def __init__(
        self,
        database: Database,
        engine: Engine,
        heartbeats: Heartbeats,
        settings: Settings,
        clock: Clock = Clock(),
        *,
        launcher: Launcher | None = None,
        start_over: Callable[[], None] = partial(signal.raise_signal, signal.SIGTERM),
    ) -> None:
        """Prepare the reconcilers; places are lent by the launcher of the settings, or by another one.

        `start_over` is called where the database was exchanged: then all that this process remembers is of another one.
        """
        launcher = launcher or launcher_of(settings, partial(installation.own_id, database))
        self._clock = clock
        self._start_over = start_over
        self._which_database = ""
        self._database = database
        self._settings = settings
        self._engine = engine
        self._heartbeats = heartbeats
        self._failures = Failures()
        self._observer = Observer(database, heartbeats, settings, self._failures)
        self._timed = TimedReconciler(database, settings, clock, self._failures)
        self._operator = Operator(database, engine, launcher, settings, self._timed, launched=self._observer.look_at)
        self._checker = Checker(database, engine, self._failures)
        self._volumes = VolumeKeeper(database, engine, settings, clock, self._failures)
        self._probe = reach.Probe(database, engine, clock)
        self._directory = DirectoryCheck(database, settings, clock)
        self._audit = AuditWriter(database, settings, clock)
        self._audit_sender = AuditSender(database, settings, clock)
        self._alerts = AlertSender(database, settings, clock)
        self._repairs = AutomaticRepair(database, settings, clock)
        self.loop = Loop(database, settings, self._failures)
        self.cycle_s: float | None = None
        """How long the queue was last served; None where this process has not done that."""
        self._queue_seen: float | None = None
        self._health = HealthCheck(database, settings, clock, launcher, self.loop.check)
        self._leases = LeaseKeeper(database, launcher, clock)
        self._woken = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._starts: set[str] = set()
        self._stops: set[str] = set()
        self._changes: set[str] = set()
        self._retries = Retries(clock)
        self._parts: dict[str, float] = {}
        self._passed = {"observe": NEVER, "lead": NEVER}

    def wake(self) -> None:
        """Let the leader look now instead of at its next tick."""
        self._woken.set()

    @property
    def since_pass_s(self) -> float:
        """For how long one of the loops has not gone round; 0 before they have begun."""
        return max(0.0, self._clock.monotonic() - min(self._passed.values()))

    async def run(self) -> None:
        """Run for ever."""
        loops = [asyncio.create_task(self._observe()), asyncio.create_task(self._lead())]
        try:
            await asyncio.gather(*loops)
        finally:
            await _end([*loops, *self._busy.values()])

    @property
    def operations(self) -> Mapping[str, asyncio.Task[None]]:
        """What is under way at the machines, by session, image or container."""
        return MappingProxyType(self._busy)

    async def observe(self) -> None:
        """Write what agents have said since the last time, and begin to remove the containers that nobody wants."""
        for orphan in await self._observer.apply():
            self._remove(orphan)
        if self._settings.audit_folder:
            async with self._database.reading() as db:
                self._heartbeats.audit_head = str(await audit.head(db))

    async def reconcile(self, begin: Begin | None = None, reading: Begin | None = None) -> bool:
        """Do everything that can be done now; returns whether anything was begun.

        `begin` gives the transactions of a leader, in which alone places are given away; `reading` is where a leader
        looks what there is to do.
        """
        seen = await self._look(reading)
        if await self._part("time", partial(self._timed.apply, seen, begin)):
            seen = await self._look(reading)
        if seen.resizing:
            await self._part("shares", partial(self._take_space, begin))
        await self._part("scheduler", partial(self._schedule, begin, seen))
        async with self._database.reading() as db:
            some = seen.in_operation or seen.resizing or seen.waiting or seen.growing
            waiting = await lifecycle.in_operation(db) if some else {}
            images = await self._checker.due(db) if seen.images else []
            volumes = "volumes" not in self._busy and await self._volumes.due(db, going=seen.volumes)
        self._retries.keep(waiting.keys())
        due = [id_ for id_, state in waiting.items() if str(id_) not in self._busy and self._retries.is_due(id_, state)]
        stops = [id_ for id_ in due if waiting[id_] is State.TERMINATING][: MAX_STOPS - len(self._stops)]
        changes = [id_ for id_ in due if waiting[id_] is State.RUNNING][: MAX_CHANGES - len(self._changes)]
        others = [id_ for id_ in due if waiting[id_] not in (State.TERMINATING, State.RUNNING)]
        starts = others[: MAX_STARTS - len(self._starts)]
        loaded = await self._load([*starts, *stops, *changes])
        for chosen, at_work in ((starts, self._starts), (stops, self._stops), (changes, self._changes)):
            at_work.update(map(str, chosen))
            for session_id in chosen:
                self._begin(str(session_id), self._operate(session_id, waiting[session_id], loaded.get(session_id)))
        unseen = [image_id for image_id in images if f"image/{image_id}" not in self._busy]
        for image_id in unseen:
            self._begin(f"image/{image_id}", self._checker.check(image_id))
        if seen.out_of_reach and self._probe.is_due and "probe" not in self._busy:
            self._begin("probe", self._probe.work())
        self._begin_looks(seen)
        if seen.alerts and "alerts" not in self._busy:
            self._begin("alerts", self._alerts.work())
        if self._leases.is_due and "leases" not in self._busy:
            self._begin("leases", self._leases.work())
        if volumes:
            self._begin("volumes", self._volumes.work())
        self._begin_audit(seen)
        return bool(starts or stops or changes or unseen or volumes)

    def _begin_looks(self, seen: Glance) -> None:
        # what they find can wait for the next tick
        for name, part in (("directory", self._directory), ("repairs", self._repairs)):
            if part.is_due and name not in self._busy:
                self._begin(name, part.look(), wakes=False)
        if self._health.is_due and "health" not in self._busy:
            self._begin("health", self._health.look(silent=seen.silent or seen.lost or seen.unknown), wakes=False)

    def _begin_audit(self, seen: Glance) -> None:
        if self._audit.is_due(unwritten=seen.audit) and "audit" not in self._busy:
            # what came meanwhile, and the syslog server, wait for the next look: it costs more than to write a line
            self._begin("audit", self._audit.work(), wakes=False)
        if seen.unsent and self._audit_sender.is_due and "syslog" not in self._busy:
            self._begin("syslog", self._audit_sender.work())

    async def _look(self, reading: Begin | None) -> Glance:
        async with (reading or self._database.reading)() as db:
            return await glance.look(db, self._settings, self._clock.now())

    @property
    def queue_age_s(self) -> float | None:
        """How long ago the queue was last looked at; None where this process has not done that."""
        return None if self._queue_seen is None else self._clock.monotonic() - self._queue_seen

    async def _schedule(self, begin: Begin | None, seen: Glance) -> None:
        if seen.waiting or seen.growing:
            begun = self._clock.monotonic()
            await self.loop.run(begin)
            self.cycle_s = self._clock.monotonic() - begun
        else:
            self.loop.rest()
        self._queue_seen = self._clock.monotonic()

    async def _part(self, name: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Do a part of the work; one that fails hinders no other, and is done again after a while.

        Returns whether something may have changed by it.
        """
        if self._parts.get(name, 0.0) > self._clock.monotonic():
            return False
        try:
            changed = await work()
        except OUTAGES:
            raise
        except Exception as error:
            self._failures.note(PART, name, error)
            tries = self._failures.count(PART, name)
            self._parts[name] = self._clock.monotonic() + wait_s(tries - 1)
            return True
        self._failures.forget(PART, name)
        return bool(changed)

    async def _take_space(self, begin: Begin | None) -> None:
        if self.loop.reservations is not None:
            await resizes.take_space(self._database, self.loop.claims, self._failures, begin)

    async def _observe(self) -> None:
        while True:
            self._passed["observe"] = self._clock.monotonic()
            await _wait(self._heartbeats.news, min(ALIVE_S, ALIVE_PART * self._settings.heartbeat_interval_s))
            urgent = self._heartbeats.news.is_set()
            if urgent:
                await asyncio.sleep(GATHER_S)
            try:
                await self.observe()
                if urgent:
                    self.wake()
            except Exception as error:
                log.exception("observe", error=str(error))
                await asyncio.sleep(TICK_S)

    async def _lead(self) -> None:
        while True:
            self._passed["lead"] = self._clock.monotonic()
            try:
                async with self._database.leadership() as leadership:
                    # nobody exchanges a database to which there are connections
                    await self._check_database()
                    while True:
                        self._passed["lead"] = self._clock.monotonic()
                        if not leadership.held and await leadership.renew():
                            self._timed.begin()
                        if leadership.held:
                            await self.reconcile(leadership.transaction, leadership.reading)
                        else:
                            await self._timed.watch()
                        await _wait(self._woken, TICK_S)
                        await asyncio.sleep(GATHER_S)
                        self._woken.clear()
            except Exception as error:
                log.exception("lead", error=str(error))
                await asyncio.sleep(TICK_S)

    async def _check_database(self) -> None:
        """Raise UnavailableError where the database is another one than before, and let the process start over.

        One that was there before, and was kept under another name meanwhile, has what nodes had reported to it then.
        """
        found = await self._database.which()
        if self._which_database not in ("", found):
            async with self._database.transaction() as db:
                await nodes.forget_reports(db)
            self._start_over()
            raise UnavailableError("the database was exchanged, as by a restore", hint="wait: the API starts over")
        self._which_database = found

    async def _load(self, ids: Sequence[UUID]) -> Mapping[UUID, Session]:
        """Load sessions that are to be operated on, together; where that fails each is loaded alone, and may fail."""
        if not ids:
            return {}
        try:
            return await self._operator.load(ids)
        except Exception:
            log.exception("sessions are loaded one by one")
            return {}

    async def _operate(self, session_id: UUID, state: State, loaded: Session | None) -> None:
        what = DOING[state]
        try:
            session = loaded or (await self._operator.load([session_id])).get(session_id)
            unfinished = await self._operator.operate(session, self._retries.tries(session_id)) if session else None
        except OUTAGES:
            raise
        except Exception as error:
            self._retries.put_off(session_id, state)
            if self._failures.note(what, session_id, error):
                await self._give_up(session_id, what)
            return
        self._failures.forget(what, session_id)
        if unfinished:
            self._retries.put_off(session_id, unfinished)
        else:
            self._retries.forget(session_id)

    async def _give_up(self, session_id: UUID, what: str) -> None:
        """Bring a session nearer to its end; one that does not come to it is left alone until the API starts again."""
        if self._failures.count(what, session_id) >= MAX_FAILURES:
            log.error("session left alone", key=str(session_id))
            self._retries.leave_alone(session_id)
        await self._operator.give_up(session_id, what)

    def _remove(self, orphan: Orphan) -> None:
        key = f"{orphan.target.name}/{orphan.container_id}"
        left_alone = self._failures.count(ORPHANS, key) >= TRIES
        if not left_alone and key not in self._busy and orphan.session_id not in self._busy:
            log.info("orphaned container", node=orphan.target.name, container=orphan.container_id)
            self._begin(key, self._end_orphan(key, orphan))

    async def _end_orphan(self, key: str, orphan: Orphan) -> None:
        try:
            await self._engine.terminate(orphan.target, orphan.container_id, ORPHAN_GRACE_S)
        except PenstockError:
            raise
        except Exception as error:
            left_alone = self._failures.note(ORPHANS, key, error)
        else:
            return
        if left_alone:
            log.error("orphaned container left alone", node=orphan.target.name, container=orphan.container_id)

    def _begin(self, key: str, work: Coroutine[Any, Any, None], *, wakes: bool = True) -> None:
        task = self._busy[key] = asyncio.create_task(self._finish(key, work, wakes=wakes))
        task.set_name(key)

    async def _finish(self, key: str, work: Coroutine[Any, Any, None], *, wakes: bool) -> None:
        request_id.begin()
        try:
            await work
        except PenstockError as error:
            log.warning("operation", key=key, reason=str(error))
        except Exception as error:
            log.exception("operation", key=key, error=str(error))
            await asyncio.sleep(TICK_S)
        finally:
            self._busy.pop(key, None)
            for under_way in (self._starts, self._stops, self._changes):
                under_way.discard(key)
            if wakes:
                self.wake()


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks until they end.

    One time may be too few: before Python 3.12 `asyncio.wait_for`, which the database's driver uses for every answer,
    loses a cancellation that comes together with what it waits for.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=TICK_S)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout_s)


async def _wake_afterwards(connection: HTTPConnection) -> AsyncIterator[None]:
    yield
    manager: Manager = connection.app.state.manager
    manager.wake()


WakeAfterwards = Annotated[None, Depends(_wake_afterwards)]
"""Ends with the request, after the transaction: the leader finds what the client was told."""
