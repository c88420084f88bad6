"""Budget of the denied calls of a container: so many are answered at once, so many a second in the long run. Pure."""

from __future__ import annotations

from dataclasses import dataclass

BURST = 500
"""Denied calls of one container that are answered at once."""
RATE_PER_S = 100
"""Denied calls of one container that are answered in the long run; a program that makes more waits for each."""


@dataclass
class Budget:
    """What one container has left at the moment `at`, in seconds of a clock that goes forward."""

    at: float
    left: float = BURST

    def is_spent(self, now: float) -> bool:
        """Return whether the next call has to wait."""
        self.left = min(BURST, self.left + (now - self.at) * RATE_PER_S)
        self.at = now
        return self.left < 1

    def spend(self) -> None:
        """Take one answer off."""
        self.left -= 1
