"""Cycles of the scheduler's loop, as they are handed on: what was read, and what was decided."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from uuid import UUID

import structlog

from api.control.project_states import SECOND
from api.resources.sessions.scheduling import Asked, PendingReasonUpdate
from api.scheduler.claims import Claim
from api.scheduler.draft import HOUR
from api.scheduler.snapshot import Decision, ProjectState, Snapshot
from common.sentence import Sentence

log = structlog.get_logger()

PLACE, STOP = Sentence("to find it a place"), Sentence("to stop it for another one")
GROW = Sentence("to give it further containers")


@dataclass(frozen=True)
class DecidedCycle:
    """One that has run: what was seen and what was decided, and the claims of those that wait then."""

    snapshot: Snapshot
    decision: Decision
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Read:
    """A snapshot, and the rows that it was made from."""

    snapshot: Snapshot
    queue: Sequence[Asked]
    outside: Sequence[PendingReasonUpdate]
    names: dict[UUID, str]


@dataclass(frozen=True)
class Part:
    """What of a decision concerns one session, as far as it is to be written alone, and what that is for people."""

    session_id: UUID
    what: str
    read: Read
    decision: Decision

    @property
    def beneficiaries(self) -> set[UUID]:
        """For whom the session is stopped, or gives up containers."""
        return {UUID(reclaim.beneficiary) for reclaim in self.decision.reclaims}


def singly(read: Read, decision: Decision) -> Iterator[Part]:
    """Yield what was decided for each session alone: those that wait, then those that are stopped or grow."""
    for row in read.queue:
        yield Part(row.id, PLACE, replace(read, queue=[row], outside=[]), _waiting(decision, str(row.id)))
    for update in read.outside:
        yield Part(update.session_id, PLACE, replace(read, queue=[], outside=[update]), Decision())
    inside = replace(read, outside=[])
    for victim in sorted({reclaim.victim for reclaim in decision.reclaims}):
        reclaims = tuple(reclaim for reclaim in decision.reclaims if reclaim.victim == victim)
        yield Part(UUID(victim), STOP, inside, Decision(reclaims=reclaims))
    for name, places in sorted(decision.grown.items()):
        yield Part(UUID(name), GROW, inside, Decision(grown={name: places}))


def _waiting(decision: Decision, name: str) -> Decision:
    """Return what was decided for one of the sessions that wait."""
    return Decision(
        placements={name: decision.placements[name]} if name in decision.placements else {},
        pending_reasons={name: decision.pending_reasons[name]} if name in decision.pending_reasons else {},
        reach={name: decision.reach[name]} if name in decision.reach else {},
        reservations={name: decision.reservations[name]} if name in decision.reservations else {},
    )


class Rounds:
    """Rounds of decisions, each of which looks for victims for some of those whom the ones before left out.

    Where nothing is new, another decision is made as long as the round goes on, and another round after one in which
    something was new: it may be so for those who had their turn before.
    """

    def __init__(self) -> None:
        self.left_out: tuple[str, ...] = ()
        self.go_on = False
        self._was_new = False

    def note(self, left_out: tuple[str, ...], *, is_new: bool) -> None:
        """Take notice of a decision that left these out."""
        self._was_new |= is_new
        is_over = set(self.left_out).isdisjoint(left_out)
        self.go_on = bool(left_out) and (not is_over or self._was_new)
        if is_over:
            self._was_new = False
        self.left_out = left_out


def say(decision: Decision, said: Collection[str]) -> frozenset[str]:
    """Log each line of a decision that was not `said` by the one before; returns the lines."""
    for line in decision.log:
        if line not in said:
            log.info("decision", decision=line)
    return frozenset(decision.log)


def next_change(snapshot: Snapshot) -> int:
    """Return when time alone may change the decision: somebody has run, or has waited, for long enough.

    So may a gang that has kept its containers for a while.
    """
    named: dict[str, ProjectState | None] = {project.name: project for project in snapshot.projects}
    least = {name: snapshot.settings.least_runtime_s(each) * SECOND for name, each in named.items()}
    running = [item for item in snapshot.running if not item.terminating] if any(least.values()) else []
    ran = [item.since + least.get(item.workload.project, 0) for item in running]
    patience = snapshot.settings.reserve_after_s, snapshot.settings.strict_order_after_s
    waited = [item.waiting_since + seconds * SECOND for item in snapshot.queue for seconds in patience]
    workloads = chain(snapshot.queue, (item.workload for item in snapshot.running))
    allowed = [each.moved_at + HOUR for each in workloads if each.moved_at]
    grows = [item.grows_at for item in snapshot.running if item.grows_at]
    return min(
        (moment for moment in (*ran, *waited, *allowed, *grows) if moment > snapshot.now), default=snapshot.now + 2**60
    )
