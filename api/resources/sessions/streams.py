"""Followed logs and terminals of this process: how many a user has, and that none outlives its user's right."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any
from uuid import UUID

from api import notices
from api.notices import Notices
from common.errors import ThrottledError
from common.sentence import Sentence

RECHECK_S = 10.0
"""How often it is asked whether somebody may stay, where no notice comes: keys and logins end by themselves, too."""

MayStay = Callable[[], Awaitable[None]]
"""Raises PenstockError where somebody may stay no longer."""


class Streams:
    """Those that are open; `most` is how many one user may have."""

    def __init__(self, heard: Notices, most: int) -> None:
        """Start without any."""
        self.notices = heard
        self._most = most
        self._open: Counter[UUID] = Counter()

    @contextmanager
    def admit(self, user_id: UUID) -> Iterator[None]:
        """Count a stream of a user while it is open; raises ThrottledError for one too many."""
        if self._open[user_id] >= self._most:
            raise ThrottledError(
                Sentence("{count} followed logs and terminals are open already", count=self._most),
                hint=Sentence("end some of them, and try again"),
            )
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if not self._open[user_id]:
                del self._open[user_id]

    async def follow(
        self, user_id: UUID, session_id: UUID, chunks: AsyncGenerator[bytes], may_stay: MayStay
    ) -> AsyncGenerator[bytes]:
        """Yield a log that is followed while its user may; raises ThrottledError, and what `may_stay` raises."""
        with self.admit(user_id):
            async with aclosing(_while_watched(chunks, self.watch(user_id, session_id, may_stay))) as watched:
                async for chunk in watched:
                    yield chunk

    async def watch(self, user_id: UUID, session_id: UUID, may_stay: MayStay) -> None:
        """Ask whether a user may still follow a session, at each notice of either; ends with what `may_stay` raises."""
        with self.notices.about(notices.of_user(user_id), notices.of_session(session_id)) as news:
            while True:
                await may_stay()
                await notices.wait(news, RECHECK_S)


async def _while_watched(chunks: AsyncGenerator[bytes], watching: Coroutine[Any, Any, None]) -> AsyncGenerator[bytes]:
    """Yield chunks until they end or `watching` does, with what it raises."""
    watch = asyncio.ensure_future(watching)
    chunk: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            chunk = asyncio.ensure_future(_next(chunks))
            await asyncio.wait((watch, chunk), return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                watch.result()
            if (found := await chunk) is None:
                return
            yield found
    finally:
        rest = [task for task in (watch, chunk) if task]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await chunks.aclose()


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
