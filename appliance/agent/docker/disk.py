"""The disk of containers, held from outside: who writes more than its limit is ended before the node's disk is full.

Few drivers of Docker can limit what a container writes, so that it is measured. What an image declares as a volume
counts, and what a session mounts does not: that lies elsewhere. Logs are limited by Docker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from common import process
from common.errors import NotFoundError, PenstockError

log = structlog.get_logger()

EVERY_S = 5.0
REST = 10
"""How many times as long as it takes to measure all nothing is measured: many small files take long."""
FILE_KIB = 4
"""So much every file and folder counts at least, on average."""
_VANISHED = 1
"""How `du` ends where files went while it looked."""


def used_mib(places: Sequence[Path]) -> int:
    """Return what lies in folders, each file once; other file systems in them do not count. Raises PenstockError.

    Files without content are not free: a disk has room for so many of them.
    """
    return max(_total("--block-size=1K", places), FILE_KIB * _total("--inodes", places)) >> 10


def _total(unit: str, places: Sequence[Path]) -> int:
    command: list[str | Path] = ["nice", "-n", "19", "du", "-sxc", unit, "--", *places]
    return int(process.run(command, accepted=(0, _VANISHED)).splitlines()[-1].split()[0])


class DiskEnforcer:
    """Measures the containers of a node in turn."""

    def __init__(
        self,
        written_mib: Callable[[str], int],
        limits_mib: Callable[[], Mapping[str, int]],
        end: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Watch containers by their ids: what they have written may take long to measure.

        `end` ends one for a reason that its state then tells; it raises PenstockError where it cannot.
        """
        self._written_mib = written_mib
        self._limits_mib = limits_mib
        self._end = end
        self._threads = anyio.CapacityLimiter(1)

    async def run(self) -> None:
        """Check for ever."""
        while True:
            began = time.monotonic()
            for identity, limit_mib in self._limits_mib().items():
                await self._check(identity, limit_mib)
            await asyncio.sleep(max(EVERY_S, REST * (time.monotonic() - began)))

    async def _check(self, identity: str, limit_mib: int) -> None:
        try:
            written = await to_thread.run_sync(self._written_mib, identity, limiter=self._threads)
            if written > limit_mib:
                await self._end(
                    identity,
                    f"disk over the limit: {written} MiB are written beside its volumes, and {limit_mib} MiB are given",
                )
        except NotFoundError:
            # it has gone meanwhile
            return
        except PenstockError as error:
            log.warning("the disk of a container is not held", id=identity, reason=str(error))
