"""Kernels that may never end, noticed while they run: told by the session's warning and by a check of the node.

Nobody can stop a kernel from outside, and the library is not asked while a program waits for one. So the account tells
one of two things: the library saw such work when another launch came, or nothing has been launched or counted for as
long; NVML then says whether the container really computes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from anyio import to_thread

from appliance.agent.shares.gpu_readings import GpuReadings
from appliance.agent.shares.share_manager import ShareManager
from appliance.gpu.layout import ENDLESS_NS, Total
from appliance.gpu.preload import Preload
from common.checks import Check, CheckState
from common.errors import PenstockError
from common.gpu.kinds import Compute

log = structlog.get_logger()

EVERY_S = 2.0
SAMPLED_S = 4.0
"""So far back NVML's samples count: it takes some each second, or every few."""
FRESH_NS = 3_000_000_000
"""What the library saw so long ago at most, it still sees: who waits behind such work looks four times a second."""
COMPUTES = 100
"""Permille of the GPU's time from which on a container computes: neighbours may have the rest."""
CHECK = "gpu.kernel"
_NAME = "no kernel runs on and on"
_HINT = (
    "`penstock restart` of that session, or a whole GPU for it, where its neighbours wait; the kernel cannot be stopped"
)


@dataclass
class _Progress:
    """What the account said, and since when it has said the same; `since_ns` is when the work seems to have begun."""

    said: tuple[int, int]
    since_ns: int
    endless_ns: int = 0


@dataclass(frozen=True)
class Endless:
    """A kernel of a container on a GPU; `since` is about when it began, UTC."""

    container: str
    uuid: str
    since: datetime

    def __str__(self) -> str:
        """Return what the session's warning says."""
        return (
            f"a kernel has been running on GPU {self.uuid} since {self.since:%Y-%m-%d %H:%M} UTC; it cannot be stopped"
        )


class KernelWatch:
    """Watches the shares of all containers whose time the library divides."""

    def __init__(
        self,
        shares: ShareManager,
        readings: GpuReadings,
        preload: Preload,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Start with nothing known; `clock` returns ns of CLOCK_MONOTONIC."""
        self._shares = shares
        self._readings = readings
        self._preload = preload
        self._clock = clock
        self._wall = wall
        self._progress: dict[tuple[str, str], _Progress] = {}
        self._found: dict[tuple[str, str], Endless] = {}
        # the checks of the node's health are asked for in other threads
        self._lock = threading.Lock()

    async def run(self, tell: Callable[[], None]) -> None:
        """Look for ever; `tell` is called when the warning of a container changes."""
        while self._preload.compute is not Compute.OFF:
            await asyncio.sleep(EVERY_S)
            try:
                if await to_thread.run_sync(self.look):
                    tell()
            except Exception as error:
                # whatever it was: without this task nobody would watch any more
                log.exception("kernels cannot be watched", reason=str(error))

    def look(self) -> bool:
        """Look once; return whether the warning of a container has changed. It may block."""
        now_ns, found = self._clock(), dict[tuple[str, str], Endless]()
        progress = self._read(now_ns)
        for key in progress:
            if self._may_be_endless(progress[key], now_ns) and self._computes(*key, progress[key]):
                found[key] = self._found.get(key) or self._begun(*key, progress[key], now_ns)
        with self._lock:
            before, self._found, self._progress = self._found, found, progress
        for key in found.keys() - before.keys():
            log.warning("a kernel may never end", id=key[0], gpu=key[1], since=found[key].since.isoformat())
        warned = {identity: str(found[identity, uuid]) for identity, uuid in found}
        for identity, holding in list(self._shares.holdings.items()):
            holding.endless = warned.get(identity, "")
        return found.keys() != before.keys()

    def checks(self) -> list[Check]:
        """Return a check for each GPU that is shared, for the node's health."""
        with self._lock:
            found, watched = list(self._found.values()), {uuid for _, uuid in self._progress}
        checks = []
        for uuid in sorted(watched):
            said = "; ".join(
                f"container {each.container}: since {each.since:%Y-%m-%d %H:%M} UTC"
                for each in sorted(found, key=lambda each: each.container)
                if each.uuid == uuid
            )
            state = CheckState.WARN if said else CheckState.OK
            checks.append(Check(CHECK, _NAME, state, said or "all have ended in time", _HINT if said else "", uuid))
        return checks

    def _read(self, now_ns: int) -> dict[tuple[str, str], _Progress]:
        """Return what the accounts say now, by container and GPU, with since when they have said so."""
        read = {}
        for container in list(self._shares.holdings):
            shared = [share.device.uuid for share in self._shares.shares_of(container) if not share.is_whole]
            totals = self._totals(container) if shared else {}
            for uuid in shared:
                if (total := totals.get(uuid)) is None:
                    continue
                said, before = (total.launches, total.busy_ns), self._progress.get((container, uuid))
                since_ns = before.since_ns if before and before.said == said else now_ns
                read[container, uuid] = _Progress(said, since_ns, total.endless_ns)
        return read

    def _totals(self, container: str) -> dict[str, Total]:
        try:
            return self._preload.totals(container) if self._preload.has(container) else {}
        except PenstockError:
            return {}

    def _may_be_endless(self, progress: _Progress, now_ns: int) -> bool:
        launches, _ = progress.said
        return self._is_seen(progress, now_ns) or (launches > 0 and now_ns - progress.since_ns >= ENDLESS_NS)

    def _is_seen(self, progress: _Progress, now_ns: int) -> bool:
        # the container may write its account: a time that has not come says nothing
        return bool(progress.endless_ns) and 0 <= now_ns - progress.endless_ns < FRESH_NS

    def _computes(self, container: str, uuid: str, progress: _Progress) -> bool:
        """Return whether NVML saw the container compute just now; where it cannot tell, what the library saw counts."""
        since_us = int((self._wall() - timedelta(seconds=SAMPLED_S)).timestamp() * 1_000_000)
        busy = self._readings.busy(uuid, since_us)
        return self._is_seen(progress, self._clock()) if busy is None else busy.get(container, 0) >= COMPUTES

    def _begun(self, container: str, uuid: str, progress: _Progress, now_ns: int) -> Endless:
        begun_ns = min(progress.since_ns, now_ns - ENDLESS_NS)
        return Endless(container, uuid, self._wall() - timedelta(microseconds=(now_ns - begun_ns) // 1000))
