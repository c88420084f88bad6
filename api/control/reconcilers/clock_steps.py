"""Steps of the master's clock: what began before one, or is to end after a while, moves with the clock.

So it lasts as long as it should, and is shown by the clock that people see now. What stands in a calendar stays:
periods of projects, the ends of API keys, when a session is to start. A step while nobody leads is not seen: who begins
to lead takes the clock as it is.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from api.clock import Clock
from api.database import Begin
from api.resources.accounting import service as accounting
from api.resources.images import repository as images
from api.resources.nodes import service as nodes
from api.resources.projects import spare_had
from api.resources.sessions import lifecycle

log = structlog.get_logger()

STEP = timedelta(seconds=1)
"""Less counts as none, until several come to so much."""


class ClockSteps:
    """Compares the clock with one that nobody sets, at each look."""

    def __init__(self, clock: Clock) -> None:
        """Begin with the clock as it is."""
        self._clock = clock
        self.total = timedelta()
        """By how much times were moved since this process began."""
        self.begin()

    def begin(self) -> None:
        """Take the clock as it is: who led until now has followed its steps."""
        self._began = _difference(*self._clock.both())

    async def follow(self, transaction: Begin) -> datetime:
        """Move what a step has left behind since the last look, in one transaction; returns this moment."""
        at, moment = self._clock.both()
        began = _difference(at, moment)
        step = began - self._began
        if abs(step) >= STEP:
            log.warning("the clock was set", by_s=round(step.total_seconds()))
            async with transaction() as db:
                await nodes.move(db, step)
                await lifecycle.move(db, step)
                await accounting.move(db, step)
                await images.move(db, step)
                await spare_had.move(db, step)
            self._began, self.total = began, self.total + step
        return at


def _difference(at: datetime, moment: float) -> datetime:
    return at - timedelta(seconds=moment)
