"""The limit of GPU memory, held from outside: what slips past a container's enforcement is charged, warned, then ended.

What a program cannot be kept from inside of a container, such as calls of the kernel's driver by its own code, still
shows in NVML. What NVML counts and the container's account does not is uncounted: the library charges it as well, so a
program sees that memory is out before it is ended for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog
from anyio import to_thread

from appliance.agent.shares.gpu_readings import GpuReadings, Reading
from appliance.agent.shares.share_manager import ShareManager
from appliance.gpu.layout import Total
from common.errors import PenstockError
from common.gpu.kinds import Enforcement

log = structlog.get_logger()

EVERY_S = 1.0
PATIENCE = 5
"""Checks in a row that find a container over its limit, after which it is ended."""
_WATCHED = (Enforcement.DRIVER, Enforcement.SHIM, Enforcement.MPS)


class Accounts(Protocol):
    """The accounts of containers that the library holds."""

    def totals(self, container: str) -> Mapping[str, Total]:
        """Return what a container's processes say that they do with each GPU; raises UnavailableError."""

    def charge(self, container: str, uncounted: Mapping[str, int]) -> None:
        """Charge what they hold beyond that, in bytes by GPU; raises UnavailableError."""


class MemoryEnforcer:
    """Checks the memory of all containers each second."""

    def __init__(
        self,
        shares: ShareManager,
        readings: GpuReadings,
        accounts: Accounts,
        slack_mib: int,
        end: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Watch; a container may have `slack_mib` more than its limit for each of its processes on a GPU.

        `end` ends one, by its id, for a reason that its state then tells; it raises PenstockError where it cannot.
        """
        self._shares = shares
        self._gpu_readings = readings
        self._accounts = accounts
        self._slack_mib = slack_mib
        self._end = end
        self._over: dict[str, int] = {}
        self._uncounted: dict[str, dict[str, int]] = {}

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
        readings = await to_thread.run_sync(self._read)
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

    def _read(self) -> dict[str, dict[str, Reading]]:
        """Return what NVML counts, and charge what of it the accounts do not know.

        These are read before and after, and the larger number counts: what changes meanwhile is no difference. Nor is
        what only one look finds: a program may have taken and freed memory between two readings.
        """
        before = self._counted()
        readings = self._gpu_readings.memory()
        after = self._counted()
        found = {
            identity: _uncounted(readings.get(identity, {}), before.get(identity, {}), totals)
            for identity, totals in after.items()
        }
        for identity, uncounted in found.items():
            last = self._uncounted.get(identity, {})
            try:
                self._accounts.charge(
                    identity, {uuid: min(size, last.get(uuid, 0)) for uuid, size in uncounted.items()}
                )
            except PenstockError as error:
                log.warning("what is uncounted is not charged", id=identity, reason=str(error))
        self._uncounted = found
        return readings

    def _counted(self) -> dict[str, Mapping[str, Total]]:
        found: dict[str, Mapping[str, Total]] = {}
        for identity, holding in list(self._shares.holdings.items()):
            if holding.kind is Enforcement.SHIM:
                try:
                    found[identity] = self._accounts.totals(identity)
                except PenstockError:
                    # it has just gone, or its limits are of another version
                    continue
        return found

    def _excess(self, identity: str, readings: dict[str, Reading]) -> str:
        """Return by what a container is over its limit; empty where it is not, or has slack."""
        for share in self._shares.shares_of(identity):
            reading = readings.get(share.device.uuid, Reading())
            used_mib = reading.memory_bytes >> 20
            slack_mib = self._slack_mib * max(1, reading.processes)
            if not share.is_whole and used_mib > share.memory_mib + slack_mib:
                return (
                    f"GPU memory over the limit: {used_mib} MiB of GPU {share.device.uuid} are in use, and"
                    f" {share.memory_mib} MiB are given"
                )
        return ""


def _uncounted(
    readings: Mapping[str, Reading], before: Mapping[str, Total], after: Mapping[str, Total]
) -> dict[str, int]:
    """Return the bytes of each GPU that NVML counts beyond what an account said before and after."""
    return {
        uuid: max(0, readings[uuid].memory_bytes - max(before[uuid].used_bytes, after[uuid].used_bytes))
        for uuid in readings.keys() & before.keys() & after.keys()
    }
