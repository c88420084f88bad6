"""Dry runs of submissions: what the scheduler would decide on sessions that nobody has submitted.

A session is made as a submission makes it, in a transaction that is rolled back, and decided on by a planner of its
own, as often as it is asked for, behind all that wait. That is kept for a moment: people who fill in a form ask again
and again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import UUID

from api.auth.identity import Identity
from api.control.loop import Loop
from api.database import Database
from api.resources.projects import service as projects
from api.resources.sessions import submission
from api.resources.sessions.schemas import DryRunRequest
from api.resources.sessions.submission import SubmissionContext
from api.resources.sessions.views import DryRunView
from api.scheduler.phrases import some
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Decision, Snapshot, Workload
from api.scheduler.titles import NAMED
from api.tables.sessions import Session
from common.errors import ThrottledError, UnavailableError
from common.sentence import Sentence

KEPT_S = 2.0
"""A look at the cluster is good for so long."""

AMOUNTS = ("gpu_milli", "cpu_milli", "memory_mib", "shm_mib", "disk_mib")
AT_ONCE = 3
"""So many answers one user may wait for."""


@dataclass(frozen=True)
class _Asked:
    """What a request asks for: how often, why nothing would start yet however much is free, and amounts of a container.

    `id` is that of the one session that was made.
    """

    id: UUID
    count: int
    not_yet: str
    amounts: Mapping[str, int]

    @classmethod
    def of(cls, made: Session, count: int) -> _Asked:
        """Return what was asked for, of the session that was made; it is not there any more afterwards."""
        amounts = {name: getattr(made, name) for name in AMOUNTS}
        return cls(made.id, count, made.reason if made.starts_at else "", amounts)


@dataclass(frozen=True)
class _Look:
    """The cluster as it was, ready for decisions, which change nothing of it."""

    loop: Loop
    snapshot: Snapshot
    planner: Planner
    projects: frozenset[str]
    until: float


class DryRuns:
    """Decides one after another, so that many who ask at once take no more than a thread."""

    def __init__(self, loop: Loop) -> None:
        """Look at nothing yet."""
        self._loop = loop
        self._one_at_a_time = asyncio.Lock()
        self._look: _Look | None = None
        self._waiting: Counter[UUID] = Counter()

    async def check(
        self, database: Database, request: DryRunRequest, caller: Identity, context: SubmissionContext
    ) -> DryRunView:
        """Return what would become of sessions; raises what a submission raises that is refused.

        Raises ThrottledError where the caller waits for too many answers already, and UnavailableError where the
        scheduler fails at them.
        """
        with self._admitted(caller.id):
            async with database.reading() as db:
                # whoever names projects that are not there has nothing looked at
                await projects.get(db, request.project, caller)
            return await self._check(database, request, caller, context)

    async def _check(
        self, database: Database, request: DryRunRequest, caller: Identity, context: SubmissionContext
    ) -> DryRunView:
        look = await self._look_at(request.project)
        async with database.transaction() as db:
            made = await submission.would_submit(db, request, caller, context)
            asked = _Asked.of(made, request.count)
            workloads = [] if asked.not_yet else await look.loop.workloads(db, [asked.id])
            await db.rollback()
        if asked.not_yet:
            return _view(asked, 0, asked.not_yet, submission.NOT_DUE, 0)
        if not workloads:
            raise UnavailableError(
                Sentence("the scheduler fails at what is asked for"), hint=Sentence("look into the log of the API")
            )
        equal = [replace(each, id=f"{each.id}-{number}") for each in workloads for number in range(asked.count)]
        async with self._one_at_a_time:
            try:
                decision = await asyncio.to_thread(_decided, look, equal)
            except Exception:
                self._look = None
                raise
        waiting = [(reason, each.id) for each in equal if (reason := decision.pending_reasons.get(each.id))]
        if not waiting:
            return _view(asked, asked.count, "", "", 0)
        first, id_ = min(waiting, key=lambda item: item[0].position)
        told = _would_be_stopped(decision, id_) or first.reason
        return _view(asked, asked.count - len(waiting), told, first.cause.value, first.position)

    @contextmanager
    def _admitted(self, user_id: UUID) -> Iterator[None]:
        if self._waiting[user_id] >= AT_ONCE:
            raise ThrottledError(
                Sentence("{count} dry runs of yours are under way", count=AT_ONCE),
                hint=Sentence("wait for their answers"),
            )
        self._waiting[user_id] += 1
        try:
            yield
        finally:
            self._waiting[user_id] -= 1
            if not self._waiting[user_id]:
                del self._waiting[user_id]

    async def _look_at(self, project: str) -> _Look:
        """Return a look at the cluster that knows a project, if there is one."""
        async with self._one_at_a_time:
            look = self._look
            if look is None or look.until < time.monotonic() or project not in look.projects:
                loop, snapshot = await self._loop.apart()
                planner = await asyncio.to_thread(Planner.of, snapshot)
                known = frozenset(each.name for each in snapshot.projects)
                self._look = look = _Look(loop, snapshot, planner, known, time.monotonic() + KEPT_S)
            return look


def _decided(look: _Look, workloads: Sequence[Workload]) -> Decision:
    snapshot = look.snapshot
    at = max(snapshot.now, *(workload.submitted_at for workload in workloads))
    queue, turns = (*snapshot.queue, *workloads), tuple(workload.id for workload in workloads)
    return look.planner.decide_on(replace(snapshot, queue=queue, now=at, left_out=turns))


def _would_be_stopped(decision: Decision, id_: str) -> str:
    """Return what is told instead of a reason where others are stopped for it only in the decision.

    It names nobody, and counts nothing: else whoever asks for one size after the other would hear how large those are
    whom the reader may not see, while nobody is stopped for it.
    """
    if id_ not in {reclaim.beneficiary for reclaim in decision.reclaims}:
        return ""
    return Sentence(
        "other sessions would be stopped for it, or give up containers; {nodes} would be kept for it",
        nodes=some(decision.reserved_on(id_), NAMED),
    )


def _view(asked: _Asked, starting: int, reason: str, cause: str, position: int) -> DryRunView:
    waiting = asked.count - starting
    told = {"reason": reason, "cause": cause, "position": position}
    return DryRunView.model_validate({**asked.amounts, **told, "starting": starting, "waiting": waiting})
