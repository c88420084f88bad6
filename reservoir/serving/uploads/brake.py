"""A brake on guessing passwords: who was wrong too often is not heard for a while."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

TRIES, SECONDS = 10, 60.0
"""So often within so long an address may be wrong."""
MOST = 10_000
"""Addresses that are remembered; the ones of longest ago are forgotten first."""


class Brake:
    """Remembers when addresses were wrong."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Remember nothing yet; `now` gives seconds that never step."""
        self._now = now
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, address: str) -> float:
        """Return for how many seconds nothing is heard from an address; 0 where it is heard."""
        with self._lock:
            times = self._wrong.get(address, deque())
            return max(0.0, times[0] + SECONDS - self._now()) if len(times) == TRIES else 0.0

    def note(self, address: str) -> None:
        """Note that an address was wrong."""
        with self._lock:
            self._wrong.setdefault(address, deque(maxlen=TRIES)).append(self._now())
            self._wrong.move_to_end(address)
            if len(self._wrong) > MOST:
                self._wrong.popitem(last=False)
