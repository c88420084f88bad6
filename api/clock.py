"""The time, as the control API knows it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    """Return this moment in UTC."""
    return datetime.now(UTC)


class Clock:
    """What the reconcilers tell the time by; a subclass may let it pass in another way."""

    def now(self) -> datetime:
        """Return this moment in UTC."""
        return now()

    def both(self) -> tuple[datetime, float]:
        """Return this moment in UTC, and in seconds that nobody sets; the two go apart only where a clock is set."""
        return self.now(), time.monotonic()

    def monotonic(self) -> float:
        """Return seconds that only ever go forward, from any beginning."""
        return time.monotonic()
