"""Cycles of the scheduler's loop, as they are handed on: what was read, and what was decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from api.control.project_states import SECOND
from api.resources.sessions.scheduling import Asked, PendingReasonUpdate
from api.scheduler.draft import HOUR
from api.scheduler.snapshot import Decision, ProjectState, Snapshot


@dataclass(frozen=True)
class DecidedCycle:
    """One that has run: what was seen and what was decided."""

    snapshot: Snapshot
    decision: Decision


@dataclass(frozen=True)
class Read:
    """A snapshot, and the rows that it was made from."""

    snapshot: Snapshot
    queue: Sequence[Asked]
    outside: Sequence[PendingReasonUpdate]
    names: dict[UUID, str]

    def singly(self) -> Iterator[tuple[UUID, Read]]:
        """Yield it with one alone of the sessions that wait, for each of these."""
        for row in self.queue:
            yield row.id, replace(self, queue=[row], outside=[])
        for update in self.outside:
            yield update.session_id, replace(self, queue=[], outside=[update])


def only(decision: Decision, name: str) -> Decision:
    """Return what was decided for one of the sessions that wait."""
    placements = {name: decision.placements[name]} if name in decision.placements else {}
    reclaims = tuple(reclaim for reclaim in decision.reclaims if reclaim.beneficiary == name)
    pending_reasons = {name: decision.pending_reasons[name]} if name in decision.pending_reasons else {}
    return replace(decision, placements=placements, reclaims=reclaims, pending_reasons=pending_reasons)


def next_change(snapshot: Snapshot, moved_at: Iterable[int]) -> int:
    """Return when time alone may change the decision: somebody has run, or has waited, for long enough.

    So may a gang that has kept its containers for a while.
    """
    named: dict[str, ProjectState | None] = {project.name: project for project in snapshot.projects}
    least = {name: snapshot.settings.least_runtime_s(each) * SECOND for name, each in named.items()}
    running = [item for item in snapshot.running if not item.terminating] if any(least.values()) else []
    ran = [item.since + least.get(item.workload.project, 0) for item in running]
    patience = snapshot.settings.reserve_after_s, snapshot.settings.strict_order_after_s
    waited = [item.waiting_since + seconds * SECOND for item in snapshot.queue for seconds in patience]
    allowed = [at + HOUR for at in moved_at]
    grows = [item.grows_at for item in snapshot.running if item.grows_at]
    return min(
        (moment for moment in (*ran, *waited, *allowed, *grows) if moment > snapshot.now), default=snapshot.now + 2**60
    )
