"""Calls that block, made in threads of their own, so that nothing else of the agent waits for them.

What takes long has threads apart: forty containers that take their time to stop would else hold up every question to
Docker.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from appliance.agent.admission import MAX_CONTAINERS
from appliance.agent.docker.engine_calls import Closable

R = TypeVar("R")


async def items_in_thread(stream: Closable[R], limiter: anyio.CapacityLimiter | None) -> AsyncGenerator[R, None]:
    """Return what a stream brings, each item as it comes; the stream is closed at the end."""
    try:
        while (
            item := await to_thread.run_sync(next, stream, None, limiter=limiter, abandon_on_cancel=True)
        ) is not None:
            yield item
    finally:
        # closing wakes the thread that an abandoned wait left behind
        with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
            await to_thread.run_sync(stream.close)


async def in_thread(call: Callable[..., R], *args: Any) -> R:
    """Return what a short call returns that is made in a thread."""
    return await to_thread.run_sync(call, *args)


class Threads:
    """Threads for calls of one kind that take long, one for each container."""

    def __init__(self, most: int = MAX_CONTAINERS) -> None:
        """Start with none, of `most` at a time."""
        self._limiter = anyio.CapacityLimiter(most)

    async def call(self, call: Callable[..., R], *args: Any) -> R:
        """Return what a call returns that is made in one of them."""
        return await to_thread.run_sync(call, *args, limiter=self._limiter)
