"""The monitor of a node's health: looks again and again beside all other work, each within its bound.

A look that hangs holds up one thread, and nothing else: what it is about is unknown meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import structlog
from anyio import CapacityLimiter, to_thread

from common.check_protocol import MAX_CHECKS, CheckReport
from common.checks import Check, CheckState
from common.health import DampedChecks, Damping, unknown

log = structlog.get_logger()

LOOK_S = 5.0
"""How long a look may take before what it is about is unknown."""
TOLD_FOR = {CheckState.OK: 600.0}
"""So many seconds what was seen stays as it was told, while the state is the same: heartbeats are to repeat."""
ELSE_TOLD_FOR = 60.0

Look = Callable[[], Iterable[Check]]
Key = tuple[str, str, str]


class Monitor:
    """Looks by their names, and what they come to."""

    def __init__(self, looks: Mapping[str, Look], damping: Damping, now: Callable[[], float]) -> None:
        """Start with nothing known; each look may block, and `now` counts seconds and never steps."""
        self._looks = dict(looks)
        self._now = now
        self._threads = CapacityLimiter(max(1, len(self._looks)))
        self._running: dict[str, asyncio.Task[list[Check]]] = {}
        self._checks = DampedChecks[Key](damping)
        self._told: dict[Key, tuple[float, CheckReport]] = {}

    async def run(self, every_s: float, tell: Callable[[], None]) -> None:
        """Look for ever, and `tell` when a state has changed, or what it tells of has occurred anew."""
        while True:
            before = self._news()
            await self.look()
            if self._news() != before:
                tell()
            await asyncio.sleep(every_s)

    async def look(self) -> None:
        """Make each look once, all at the same time."""
        found = await asyncio.gather(*(self._look(name, look) for name, look in self._looks.items()))
        seen = {
            (name, check.id, check.subject): check
            for name, checks in zip(self._looks, found, strict=True)
            for check in checks
        }
        for name in self._looks:
            # it stands for what a look is about until the look knows that
            if (itself := (name, name, "")) not in seen:
                self._checks.forget(itself)
        moment = self._now()
        self._checks.see(dict(list(seen.items())[:MAX_CHECKS]), moment)
        counts = dict(list(self._checks.counts.items())[:MAX_CHECKS])
        for key, check in counts.items():
            self._tell(key, check, moment)
        self._told = {key: told for key, told in self._told.items() if key in counts}

    def reports(self) -> list[CheckReport]:
        """Return what a heartbeat tells of the checks."""
        return [report for _, report in self._told.values()]

    def _news(self) -> list[tuple[str, str, CheckState, datetime | None]]:
        return [(report.id, report.thing, report.state, report.since) for report in self.reports()]

    async def _look(self, name: str, look: Look) -> list[Check]:
        task = self._running.get(name)
        if task is None or task.done():
            task = asyncio.create_task(self._in_thread(look))
            self._running[name] = task
        done, _ = await asyncio.wait({task}, timeout=LOOK_S)
        if not done:
            return self._unknown(name, f"it took longer than {LOOK_S:g} s to look")
        if error := task.exception():
            log.warning("a check cannot be made", check=name, reason=str(error))
            return self._unknown(name, f"it cannot be looked at: {error}")
        return task.result()

    async def _in_thread(self, look: Look) -> list[Check]:
        return await to_thread.run_sync(lambda: list(look()), limiter=self._threads, abandon_on_cancel=True)

    def _unknown(self, name: str, reason: str) -> list[Check]:
        """Return what a look is about as unknown: all that it has found before, or the look itself."""
        before = [check for (of, _, _), check in self._checks.counts.items() if of == name]
        return [unknown(check, reason) for check in before] or [
            Check(name, "can be looked at", CheckState.UNKNOWN, reason)
        ]

    def _tell(self, key: Key, check: Check, moment: float) -> None:
        report, told = CheckReport.of(check), self._told.get(key)
        fresh_for = TOLD_FOR.get(check.state, ELSE_TOLD_FOR)
        if told and (told[1].state, told[1].since) == (report.state, report.since) and moment - told[0] < fresh_for:
            return
        self._told[key] = moment, report
