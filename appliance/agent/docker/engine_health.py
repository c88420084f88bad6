"""The health of the container engine: whether it answers, which nothing else tells while nobody asks it for anything.

What runs goes on without it, and nothing can be started or ended meanwhile: the node says so, and takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from appliance.agent.docker.blocking_calls import Threads
from common.errors import PenstockError

log = structlog.get_logger()

INTERVAL_S = 5.0
"""How long a dead engine goes unseen. One that takes calls and answers none is known when a call has timed out."""
DEAD = "the container engine does not answer: see `systemctl status docker`"


class EngineHealth:
    """The health of one engine. `reason` says that it does not answer, and is empty while it does."""

    def __init__(self, ask: Callable[[], None]) -> None:
        """Prepare; `ask` is a call of the engine that costs it nothing, and raises PenstockError."""
        self.reason = ""
        self._ask = ask
        # calls that wait for the engine must not keep this one from being made
        self._threads = Threads()

    async def look(self, tell: Callable[[], None]) -> None:
        """Ask the engine, and `tell` when it is another answer than before."""
        reason = ""
        try:
            await self._threads.call(self._ask)
        except PenstockError as error:
            reason = DEAD
            log.warning("nothing is started on this node", reason=str(error))
        if reason != self.reason:
            self.reason = reason
            tell()
