"""The limit of GPU memory, held from outside: what slips past a container's enforcement is warned, then ended.

What a program cannot be kept from inside of a container, such as calls of the kernel's driver by its own code, still
shows in NVML.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from anyio import to_thread

from appliance.agent.shares.gpu_readings import GpuReadings, Reading
from appliance.agent.shares.share_manager import ShareManager
from common.errors import PenstockError
from common.gpu.kinds import Enforcement

log = structlog.get_logger()

EVERY_S = 1.0
PATIENCE = 5
"""Checks in a row that find a container over its limit, after which it is ended."""
_WATCHED = (Enforcement.DRIVER, Enforcement.SHIM, Enforcement.MPS)


class MemoryEnforcer:
    """Checks the memory of all containers each second."""

    def __init__(
        self,
        shares: ShareManager,
        readings: GpuReadings,
        slack_mib: int,
        end: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Watch; a container may have `slack_mib` more than its limit.

        `end` ends one, by its id, for a reason that its state then tells; it raises PenstockError where it cannot.
        """
        self._shares = shares
        self._gpu_readings = readings
        self._slack_mib = slack_mib
        self._end = end
        self._over: dict[str, int] = {}

    async def run(self, tell: Callable[[], None]) -> None:
        """Check for ever; `tell` is called when the warning of a container changes."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                if await self.check_once():
                    tell()
            except Exception as error:
                # whatever it was: without this task nobody would watch any more
                log.exception("the memory of GPUs cannot be watched", reason=str(error))

    async def check_once(self) -> bool:
        """Check once; return whether the warning of a container has changed."""
        if not any(holding.kind in _WATCHED for holding in self._shares.holdings.values()):
            return False
        readings = await to_thread.run_sync(self._gpu_readings.memory)
        changed = False
        for identity, holding in list(self._shares.holdings.items()):
            over = self._excess(identity, readings.get(identity, {})) if holding.kind in _WATCHED else ""
            self._over[identity] = self._over.get(identity, 0) + 1 if over else 0
            if over and not holding.warning:
                log.warning("a container is over its share", id=identity, reason=over)
            if bool(holding.warning) != bool(over):
                changed = True
            holding.warning = over
            # once more where it could not be stopped
            if over and self._over[identity] % PATIENCE == 0:
                try:
                    await self._end(identity, over)
                except PenstockError as error:
                    log.warning("a container over its share is not stopped", id=identity, reason=str(error))
        self._over = {identity: count for identity, count in self._over.items() if identity in self._shares.holdings}
        return changed

    def _excess(self, identity: str, readings: dict[str, Reading]) -> str:
        """Return by what a container is over its limit; empty where it is not, or has slack."""
        for share in self._shares.shares_of(identity):
            used_mib = readings.get(share.device.uuid, Reading()).memory_bytes >> 20
            if not share.is_whole and used_mib > share.memory_mib + self._slack_mib:
                return (
                    f"GPU memory over the limit: {used_mib} MiB of GPU {share.device.uuid} are in use, and"
                    f" {share.memory_mib} MiB are given"
                )
        return ""
