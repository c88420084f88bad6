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

    def monotonic(self) -> float:
        """Return seconds that only ever go forward, from any beginning."""
        return time.monotonic()
