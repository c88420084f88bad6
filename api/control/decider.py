"""Decider: decides on the loop's snapshots, without those that wait and at which decisions fail.

Each of these is tried again alone, later and later, and ended after so many tries; all others are served meanwhile.
Where two fail that ask for the same, all that ask for it are left out with them: one of these is ended only when it has
failed so often itself, and as soon as one of them has not failed the others are back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

import structlog

from api.control.cycles import PLACE, DecidedCycle
from api.control.reconcilers.failures import TRIES, Failures, wait_s
from api.scheduler.decide import FailingWaiting, failing_running
from api.scheduler.planner import Planner
from api.scheduler.signature import Signature, signature_of
from api.scheduler.snapshot import Decision, Running, Snapshot, Workload
from common.checks import Check, CheckState

log = structlog.get_logger()

SEARCH_S = 10.0
"""So long those are looked for in one pass at which decisions fail. Who comes after those found waits for the next."""
NAMED = 3
"""So many are named in the check."""
CHECK = "scheduler"
ABOUT = CHECK, "scheduler decides"

End = Callable[[str], Awaitable[None]]
"""Ends the session of a workload."""


class Decider:
    """Keeps a planner, and which of those that wait are left out until when."""

    def __init__(self, failures: Failures) -> None:
        """Start with nobody left out."""
        self._failures = failures
        self._planner: Planner | None = None
        self._left_out: dict[str, float] = {}
        self._untried: dict[str, Signature] = {}
        self._error = ""
        self._is_cut_short = False

    @property
    def left_out(self) -> Mapping[str, int]:
        """How often decisions have failed at each workload that is left out of them.

        0 for one that has not been tried itself: they fail at others that ask for the same.
        """
        return {id_: self._failures.count(PLACE, id_) for id_ in self._left_out}

    @property
    def is_due(self) -> bool:
        """Whether one that is left out is to be tried again, or the last pass had no time for all."""
        return self._is_cut_short or self._may_try_again

    def rest(self) -> None:
        """Note that nobody waits."""
        self._forget(list(self._left_out))
        self._error = ""

    def without_left_out(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without those that are left out."""
        return _without(snapshot, self._left_out) if self._left_out else snapshot

    async def decide(self, snapshot: Snapshot, changes: Mapping[str, Running | None], end: End) -> DecidedCycle:
        """Return what is decided, and on what; `changes` are those of running workloads since the last time.

        Raises where decisions fail whoever waits, and ends one that runs with which that is so.
        """
        self._forget(self._left_out.keys() - {each.id for each in snapshot.queue})
        # whoever is left out now has its next try in a later pass, however long this one takes
        due = min(self._left_out, key=self._left_out.__getitem__) if self._may_try_again else None
        self._is_cut_short = False
        cycle = await self._decide_without_failing(self.without_left_out(snapshot), changes, end)
        return await self._try_again(due, snapshot, cycle, end) if due else cycle

    def check(self) -> Check:
        """Return whether it decides, on all that wait."""
        if self._error:
            hint = "nothing is placed meanwhile; the API's log says why: look for `failed unexpectedly`"
            return Check(*ABOUT, CheckState.FAIL, f"its decisions fail: {self._error}", hint)
        if not self._left_out:
            return Check(*ABOUT, CheckState.OK, "it decides on all that wait")
        failed = [(id_, count) for id_, count in sorted(self.left_out.items()) if count]
        tries = [f"session {id_} ({count} of {TRIES} times)" for id_, count in failed]
        more = f" and {len(tries) - NAMED} more" if len(tries) > NAMED else ""
        said = f"it fails at {', '.join(tries[:NAMED])}{more}; " if tries else ""
        said += f"it leaves out {len(self._untried)} that ask for the same; " if self._untried else ""
        said += "all others are served"
        hint = f"`penstock logs --site --session {min(self._left_out)}` tells of its request and of what failed"
        return Check(*ABOUT, CheckState.WARN, said, hint)

    @property
    def _may_try_again(self) -> bool:
        return min(self._left_out.values(), default=float("inf")) <= time.monotonic()

    async def _decide_without_failing(
        self, snapshot: Snapshot, changes: Mapping[str, Running | None], end: End
    ) -> DecidedCycle:
        """Decide, and where that fails leave out those at which it does."""
        try:
            return await self._decide(snapshot, changes)
        except Exception as error:
            first: Exception | None = error
        failing, until = FailingWaiting(snapshot), time.monotonic() + SEARCH_S
        for _ in snapshot.queue:
            found = await asyncio.to_thread(failing.find, snapshot.queue)
            if found is None:
                break
            first = None
            snapshot = _without(snapshot, await self._leave_out_all_like(found, snapshot, failing, end))
            if time.monotonic() > until:
                log.warning("the scheduler leaves out all after those found", others=len(snapshot.queue))
                snapshot, self._is_cut_short = replace(snapshot, queue=tuple(failing.served)), True
                break
        if first:
            log.error("a decision fails at nobody who waits, and is made anew", exc_info=first)
        self._planner = failing.planner
        return await self._decide_or_end(snapshot, end)

    async def _decide_or_end(self, snapshot: Snapshot, end: End) -> DecidedCycle:
        try:
            return await self._decide(snapshot, {})
        except Exception as error:
            self._error = f"{type(error).__name__} {error}".strip()
            if self._failures.note(PLACE, "", error) and (found := await asyncio.to_thread(failing_running, snapshot)):
                await end(found)
            raise

    async def _try_again(self, id_: str, snapshot: Snapshot, cycle: DecidedCycle, end: End) -> DecidedCycle:
        """Decide with one that was left out, too; where that fails again, the cycle without it counts."""
        whole = _without(snapshot, self._left_out.keys() - {id_})
        # the planner of the cycle without it is as good as it was, whatever becomes of the one that is tried
        good, self._planner = self._planner, None
        try:
            cycle = await self._decide(whole, {})
        except Exception as error:
            self._planner = good
            await self._leave_out(id_, error, end)
        else:
            (tried,) = (each for each in snapshot.queue if each.id == id_)
            self._forget([id_, *(other for other, of in self._untried.items() if of == signature_of(tried))])
        return cycle

    async def _decide(self, snapshot: Snapshot, changes: Mapping[str, Running | None]) -> DecidedCycle:
        """Decide once; where that fails, the next time begins with a planner of what is so then."""
        planner, self._planner = self._planner, None

        def decided() -> tuple[Planner, Decision]:
            if planner:
                planner.follow(snapshot, changes)
            known = planner or Planner.of(snapshot)
            return known, known.decide_on(snapshot)

        used, decision = await asyncio.to_thread(decided)
        self._planner = used
        self._failures.forget(PLACE, "")
        self._error = ""
        return DecidedCycle(snapshot, decision, used.claims)

    async def _leave_out_all_like(
        self, found: Workload, snapshot: Snapshot, failing: FailingWaiting, end: End
    ) -> Collection[str]:
        """Leave out one at which a decision fails, and all that ask for the same where it fails at another of these.

        Returns whom. One of the others is asked, on its own: to ask each would take a decision for each.
        """
        if failing.error:
            await self._leave_out(found.id, failing.error, end)
        others = [each for each in snapshot.queue if each is not found and signature_of(each) == signature_of(found)]
        if not others or not await asyncio.to_thread(failing.fails, others[-1:]):
            return [found.id]
        log.warning("the scheduler leaves out all that ask for the same", session=found.id, others=len(others))
        for each in others:
            self._untried[each.id] = signature_of(found)
            self._left_out[each.id] = self._left_out[found.id]
        return [found.id, *(each.id for each in others)]

    async def _leave_out(self, id_: str, error: Exception, end: End) -> None:
        """Leave out a workload until its next try; after so many its session is ended."""
        log.warning("the scheduler leaves out a session at which it fails", session=id_)
        self._untried.pop(id_, None)
        if self._failures.note(PLACE, id_, error):
            await end(id_)
        self._left_out[id_] = time.monotonic() + wait_s(self._failures.count(PLACE, id_) - 1)

    def _forget(self, ids: Collection[str]) -> None:
        for id_ in ids:
            del self._left_out[id_]
            self._untried.pop(id_, None)
            self._failures.forget(PLACE, id_)


def _without(snapshot: Snapshot, ids: Collection[str]) -> Snapshot:
    return replace(snapshot, queue=tuple(each for each in snapshot.queue if each.id not in ids))
