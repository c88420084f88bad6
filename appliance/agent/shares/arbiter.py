"""The arbiter of containers that share a GPU: a timetable of windows, and another when who wants to launch changes.

The containers keep to it by themselves: between two plans nothing passes between them and the agent. A plan that gives
windows of idle containers to others stands beside a fallback, which becomes valid by itself where this agent hangs and
no longer puts it off. What holds while there is no agent is the work of `own_windows.py`. What containers took from
each other's windows is found out from when each of them had work, and given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import anyio
import structlog
from anyio import to_thread

from appliance.agent.shares.share_manager import ShareManager
from appliance.gpu import balance, timetable
from appliance.gpu.activity import Activity
from appliance.gpu.contention import Contention
from appliance.gpu.layout import Total
from appliance.gpu.preload import Preload
from appliance.gpu.timetable import Sharer, Window
from common.errors import PenstockError
from common.gpu.kinds import Compute

log = structlog.get_logger()


class Arbiter:
    """The timetables of all GPUs of this node."""

    def __init__(
        self,
        shares: ShareManager,
        preload: Preload,
        mode: Compute,
        period_ms: int,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Plan periods of so many ms; `clock` returns ns of CLOCK_MONOTONIC."""
        self._shares = shares
        self._preload = preload
        self._mode = mode
        self._period_ns = period_ms * 1_000_000
        self._clock = clock
        self._plans: dict[str, dict[str, Window]] = {}
        self._contentions: defaultdict[str, Contention] = defaultdict(Contention)
        self._activities: defaultdict[str, Activity] = defaultdict(Activity)
        # containers, by GPU, whose files did not take the plan
        self._late: dict[str, set[str]] = {}
        # when the fallback of each GPU becomes valid, where one stands in the files
        self._falls_ns: dict[str, int] = {}
        # threads that wait for something else, such as Docker, must not hold up the plans
        self._thread = anyio.CapacityLimiter(1)
        # when the last planning began; 0: none yet
        self._began_ns = 0

    def is_stuck(self) -> bool:
        """Return whether planning does not come to its end; the plans have gone over to their fallbacks by then."""
        return bool(self._began_ns) and self._clock() - self._began_ns > timetable.GRACE_NS

    async def run(self) -> None:
        """Plan for ever."""
        while self._mode is not Compute.OFF:
            self._began_ns = self._clock()
            try:
                await to_thread.run_sync(self.plan_once, limiter=self._thread)
            except Exception as error:
                # whatever it was: without this task nobody would get a window back
                log.exception("the timetable of GPUs cannot be planned", reason=str(error))
            await asyncio.sleep(self._period_ns / timetable.PLANS_PER_PERIOD / 1e9)

    def plan_once(self) -> None:
        """Plan once for every GPU, and write the plans that are new."""
        now_ns = self._clock()
        sharers = self._sharers(now_ns)
        for uuid in self._plans.keys() - sharers.keys():
            del self._plans[uuid]
            self._contentions.pop(uuid, None)
            self._activities.pop(uuid, None)
            self._late.pop(uuid, None)
            self._falls_ns.pop(uuid, None)
        for uuid, present in sharers.items():
            self._plan(uuid, present, now_ns)
            if self._mode is Compute.FAIR:
                self._put_off(uuid, present, now_ns)
        # behind all plans, which must not be late
        for uuid, present in sharers.items():
            self._settle(uuid, present)
            if self._mode is Compute.FAIR:
                self._forget(uuid, present)

    def _plan(self, uuid: str, sharers: list[Sharer], now_ns: int) -> None:
        from_ns = timetable.boundary(now_ns, self._period_ns, self._period_ns // timetable.LEAD)
        working = self._activities[uuid].look(sharers)
        sharers = [replace(sharer, active=sharer.container in working) for sharer in sharers]
        wanted = timetable.plan(sharers, self._mode, self._period_ns, from_ns)
        known, late = self._plans.get(uuid, {}), self._late.get(uuid, set())
        fallen = 0 < self._falls_ns.get(uuid, 0) <= now_ns
        if fallen:
            log.warning("windows were those of the shares for a while: the agent was held up", gpu=uuid)
            del self._falls_ns[uuid]
        if fallen or {name: _place(window) for name, window in wanted.items()} != {
            name: _place(window) for name, window in known.items()
        }:
            # all of them, for a plan that has not begun yet is put off for all or for none
            missing = set(wanted)
        else:
            missing = late & set(wanted)
        self._plans[uuid], self._late[uuid] = wanted, set()
        for container in sorted(missing):
            try:
                self._preload.limits(container).schedule({uuid: wanted[container]}, now_ns)
            except PenstockError as error:
                self._late[uuid].add(container)
                # tried again with every plan: one line when it begins
                if container not in late:
                    log.warning("a container gets no timetable", id=container, reason=str(error))

    def _put_off(self, uuid: str, sharers: list[Sharer], now_ns: int) -> None:
        """Let the fallback of a GPU become valid later, for all its containers at the same time."""
        falls_ns = timetable.boundary(now_ns, self._period_ns, timetable.GRACE_NS)
        if self._falls_ns.get(uuid) == falls_ns:
            return
        put_off = set()
        for container, window in timetable.plan_for_all(sharers, self._mode, self._period_ns, falls_ns).items():
            # one whose file cannot be used has been named already
            with contextlib.suppress(PenstockError):
                put_off.add(self._preload.limits(container).put_off({uuid: window}, now_ns))
        if put_off == {True}:
            self._falls_ns[uuid] = falls_ns

    def _settle(self, uuid: str, sharers: list[Sharer]) -> None:
        """Give the containers of a GPU back what they counted as theirs and lost to each other."""
        logs = {}
        for sharer in sharers:
            # one whose file cannot be used has been named already
            with contextlib.suppress(PenstockError, ValueError):
                logs[sharer.container] = self._preload.log(sharer.container, uuid)
        # by a clock that is read behind the logs: what is later than it would count as never
        for container, lost_ns in self._contentions[uuid].look(self._clock(), logs).items():
            with contextlib.suppress(PenstockError):
                self._preload.settle(container, uuid, lost_ns)

    def _forget(self, uuid: str, sharers: list[Sharer]) -> None:
        """Let the containers with work forget what is owed to them and owed by none of them, or the other way round."""
        claims = {}
        for sharer in sharers:
            total = self._totals(sharer.container).get(uuid) if sharer.active else None
            if total:
                # one whose file cannot be used has been named already
                with contextlib.suppress(PenstockError):
                    limits = self._preload.limits(sharer.container)
                    claims[sharer.container] = balance.claim(
                        total, limits.lost(uuid), limits.forgotten(uuid), self._clock()
                    )
        for container, forgotten_ns in balance.forgotten(claims).items():
            with contextlib.suppress(PenstockError):
                self._preload.limits(container).forget(uuid, forgotten_ns)

    def _sharers(self, now_ns: int) -> dict[str, list[Sharer]]:
        found: dict[str, list[Sharer]] = {}
        for container in list(self._shares.holdings):
            if not self._preload.has(container):
                continue
            parts = [share for share in self._shares.shares_of(container) if not share.is_whole]
            totals = self._totals(container) if parts else {}
            for share in parts:
                wanted_ns = totals.get(share.device.uuid, Total()).wanted_ns
                sharer = Sharer(container, share.milli, timetable.is_active(wanted_ns, now_ns, self._period_ns))
                found.setdefault(share.device.uuid, []).append(sharer)
        return found

    def _totals(self, container: str) -> dict[str, Total]:
        try:
            return self._preload.totals(container)
        except PenstockError:
            return {}


def _place(window: Window) -> tuple[int, int, int]:
    return window.period_ns, window.offset_ns, window.length_ns
