"""Bodies of requests: no more is read than the caller may send, and none is validated that would take long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException, Request

DIGITS = 19
"""So many digits of a length are looked at: a number of more is too large, whatever comes behind."""

DROPPED, DROPPED_S = 4 << 20, 2.0
"""So many bytes of a body that is too large are read and dropped, for so many seconds: no edge holds larger ones."""


@dataclass(frozen=True)
class Bound:
    """The most that a body may have: `size` in bytes, and `keys` in all its JSON objects together.

    What is wrong is found for each key, so a body of nothing but wrong ones costs many times its size.
    """

    size: int
    keys: int


ANYBODY = Bound(64 << 10, 10_000)
"""For who is not known yet: a login."""
PEOPLE = Bound(1 << 20, 10_000)
AGENTS = Bound(4 << 20, 200_000)
"""The largest message is of an agent whose samples have waited: 10,000 of them are 3 MB with 70,000 keys."""


class BoundedRequest(Request):
    """A request whose body is read when it is asked for, up to its bound; raises HTTPException beyond."""

    def __init__(self, request: Request, bound: Bound) -> None:
        """Take the place of a request whose body nobody has read."""
        super().__init__(request.scope, request.receive)
        self._bound = bound
        self._keys = 0

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Return the body in the parts in which it comes, whatever length the client names or leaves out."""
        size, declared = 0, self.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:DIGITS]) > self._bound.size:
            raise await self._too_large()
        async for part in super().stream():
            size += len(part)
            if size > self._bound.size:
                raise await self._too_large()
            yield part

    async def json(self) -> Any:
        """Return the body as JSON; raises JSONDecodeError for what is none."""
        return json.loads(await self.body(), object_pairs_hook=self._object)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._keys += len(pairs)
        if self._keys > self._bound.keys:
            raise HTTPException(413, f"the objects of the body have more than {self._bound.keys} keys together")
        return dict(pairs)

    async def _too_large(self) -> HTTPException:
        # An edge that is still sending when its connection ends hears of no answer, so what it holds is dropped first;
        # who goes on sending more than that has no connection any more.
        dropped = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DROPPED_S):
                async for part in super().stream():
                    dropped += len(part)
                    if dropped >= DROPPED:
                        break
        return HTTPException(413, f"the body has more than {self._bound.size >> 10} KiB", {"Connection": "close"})
