"""A listing that many wait for: one command tells all of them, and no two run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from api.engine.slurm.jobs import Job
from common.lease_protocol import Lease

PAUSE_S = 0.25
"""So long after one listing the next begins, at the earliest."""

Jobs = dict[Lease, list[Job]]


class Listing:
    """Lists by `ask`, as often as somebody wants to know."""

    def __init__(self, ask: Callable[[], Awaitable[Jobs]]) -> None:
        """Start with nothing asked for."""
        self._ask = ask
        self._next: asyncio.Task[Jobs] | None = None
        self._turn = asyncio.Lock()
        self._not_before = 0.0

    async def after_now(self) -> Jobs:
        """Return a listing that begins after this was called. Raises what `ask` raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._list())
        # one who is cancelled does not take the others' answer along
        return await asyncio.shield(self._next)

    async def _list(self) -> Jobs:
        clock = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(self._not_before - clock.time())
            self._next = None
            try:
                return await self._ask()
            finally:
                self._not_before = clock.time() + PAUSE_S
