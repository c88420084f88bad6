"""Supervision of the agent's tasks: what one of them did not expect ends neither that task nor any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from common.errors import PenstockError

log = structlog.get_logger()

PAUSE_S = 1.0
"""Before a task that failed begins anew: shorter than what makes a node lost, longer than what would fill a log."""

Work = Callable[[], Coroutine[Any, Any, None]]
"""What makes the coroutine of a task, as often as it has to begin."""


async def keep_on(name: str, work: Work) -> None:
    """Do work until it is done; whatever it raises stands in the log, and after a pause it begins anew."""
    while True:
        try:
            return await work()
        except Exception as error:
            log.exception("a task of the agent has failed and begins anew", task=name, reason=str(error))
        await asyncio.sleep(PAUSE_S)


async def every(seconds: float, work: Work) -> None:
    """Do work again and again, for ever, with a pause before each time; what is away now may be there the next time."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except PenstockError as error:
            log.warning("it is tried again", reason=str(error), after_s=seconds)


class Background:
    """Work that comes to an end by itself, and that nobody waits for."""

    def __init__(self) -> None:
        """Start with none."""
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work; what it raises stands in the log."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Let go of everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("work in the background has failed", reason=str(error), exc_info=error)
