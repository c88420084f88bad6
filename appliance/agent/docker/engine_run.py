"""One run of the container engine, known by the connection on which it tells its events.

Another engine may answer as soon as the one before has ended, on the same socket and to the same questions: what is
asked of it says nothing about what the one before told. The connection ends with its engine.
"""

from __future__ import annotations

import select
import socket
from typing import Any


class EngineRun:
    """The run of an engine that tells events as a stream of the SDK."""

    def __init__(self, events: Any) -> None:
        """Take the connection of a stream that has begun; the SDK shows it to nobody."""
        self._connection: socket.socket = events._response.raw.connection.sock

    def is_over(self) -> bool:
        """Return whether the connection has ended, whatever was told on it and nobody has read yet."""
        if (number := self._connection.fileno()) < 0:
            return True
        ends = select.poll()
        ends.register(number, select.POLLRDHUP)
        return bool(ends.poll(0))
