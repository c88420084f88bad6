"""The heads of containers' logs, read as they are written for what NCCL tells there of the ways between GPUs.

NCCL tells it when a program begins, and Docker keeps the end of a log: whoever looks later finds nothing any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
import structlog

from appliance.agent.admission import MAX_CONTAINERS
from appliance.agent.docker.blocking_calls import in_thread, items_in_thread
from appliance.agent.docker.engine_calls import Closable
from common.nccl import NcclEvidence, NcclLog

log = structlog.get_logger()

MAX_HEAD = 8 << 20
"""Bytes of a log that are read: 16 GPUs tell all of their connections in a part of it."""
PIECE_COST = 256
"""What each piece counts beside its bytes: Docker sends every line by itself, however short it is."""
FINISH_S = 2.0
"""So long the rest of a log is waited for when its container has ended."""


class LogHeads:
    """Reads the head of each log that it is told of, once, in a thread for each."""

    def __init__(
        self, opened: Callable[[str], Closable[bytes]], tell: Callable[[str, NcclEvidence], None], head: int = MAX_HEAD
    ) -> None:
        """Prepare. `opened` follows the log of a container from its beginning, and `tell` gets what it says so far."""
        self._opened = opened
        self._tell = tell
        self._head = head
        self._threads = anyio.CapacityLimiter(MAX_CONTAINERS)
        self._readers: dict[str, asyncio.Task[None]] = {}

    def follow(self, identity: str) -> None:
        """Begin to read the log of a running container, unless that was done before."""
        if identity not in self._readers:
            self._readers[identity] = asyncio.create_task(self._read(identity))

    async def finish(self, identity: str) -> None:
        """Wait until the log of a container that has ended is read, so far as it is followed."""
        if reader := self._readers.get(identity):
            await asyncio.wait([reader], timeout=FINISH_S)

    def forget(self, identity: str) -> None:
        """Read no more of the log of a container that is gone."""
        if reader := self._readers.pop(identity, None):
            reader.cancel()

    async def close(self) -> None:
        """Read no more of any."""
        readers = list(self._readers.values())
        for identity in list(self._readers):
            self.forget(identity)
        await asyncio.gather(*readers, return_exceptions=True)

    async def _read(self, identity: str) -> None:
        found = NcclLog()
        try:
            async with aclosing(self._pieces(identity)) as pieces:
                async for piece in pieces:
                    self._note(identity, found, piece)
                    if found.is_complete:
                        return
            self._note(identity, found, b"\n")
        except Exception as error:
            # whatever it was, such as an engine that is restarted: what was seen stays, and the container goes on
            log.info("the head of a log is not read to its end", id=identity, reason=str(error))

    def _note(self, identity: str, found: NcclLog, piece: bytes) -> None:
        before = found.evidence
        found.feed(piece)
        if found.evidence is not before:
            self._tell(identity, found.evidence)

    async def _pieces(self, identity: str) -> AsyncGenerator[bytes, None]:
        left = self._head
        stream = await in_thread(self._opened, identity)
        async with aclosing(items_in_thread(stream, self._threads)) as items:
            async for item in items:
                yield item[:left]
                left -= len(item) + PIECE_COST
                if left <= 0:
                    return
