"""Dry runs of submissions: what the scheduler would decide on sessions that nobody has submitted.

Sessions are made as a submission makes them, in a transaction that is rolled back, and decided on by a planner of its
own, behind all that wait. That is kept for a moment: people who fill in a form ask again and again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from api.auth.identity import Identity
from api.control.loop import Loop
from api.database import Database
from api.resources.sessions import submission
from api.resources.sessions.schemas import DryRunRequest
from api.resources.sessions.submission import Made, SubmissionContext
from api.resources.sessions.views import DryRunView
from api.scheduler.planner import Planner
from api.scheduler.snapshot import Decision, Snapshot, Workload

KEPT_S = 2.0
"""A look at the cluster is good for so long."""


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

    async def check(
        self, database: Database, request: DryRunRequest, caller: Identity, context: SubmissionContext
    ) -> DryRunView:
        """Return what would become of sessions; raises what a submission raises that is refused."""
        look = await self._look_at(request.project)
        async with database.transaction() as db:
            made = await submission.would_submit(db, request, caller, context)
            workloads = [] if made.not_yet else await look.loop.workloads(db, made.ids)
            await db.rollback()
        if made.not_yet:
            return _view(made, 0, made.not_yet, submission.NOT_DUE, 0)
        async with self._one_at_a_time:
            decision = await asyncio.to_thread(_decided, look, workloads)
        waiting = [reason for id_ in made.ids if (reason := decision.pending_reasons.get(str(id_)))]
        if not waiting:
            return _view(made, len(made.ids), "", "", 0)
        first = min(waiting, key=lambda reason: reason.position)
        return _view(made, len(made.ids) - len(waiting), first.reason, first.cause.value, first.position)

    async def _look_at(self, project: str) -> _Look:
        """Return a look at the cluster that knows a project, if there is one."""
        async with self._one_at_a_time:
            look = self._look
            if look is None or look.until < time.monotonic() or project not in look.projects:
                loop, snapshot = await self._loop.apart()
                planner = await asyncio.to_thread(Planner.of, snapshot)
                projects = frozenset(each.name for each in snapshot.projects)
                self._look = look = _Look(loop, snapshot, planner, projects, time.monotonic() + KEPT_S)
            return look


def _decided(look: _Look, workloads: Sequence[Workload]) -> Decision:
    snapshot = look.snapshot
    at = max(snapshot.now, *(workload.submitted_at for workload in workloads))
    queue = (*snapshot.queue, *workloads)
    return look.planner.decide(queue, at, snapshot.settings, snapshot.reservations, snapshot.nominated)


def _view(made: Made, starting: int, reason: str, cause: str, position: int) -> DryRunView:
    amounts = asdict(made.amounts)
    del amounts["enforcement"]
    waiting = len(made.ids) - starting
    return DryRunView(starting=starting, waiting=waiting, reason=reason, cause=cause, position=position, **amounts)
