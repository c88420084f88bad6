"""Signs of life for systemd, so that an agent that hangs is ended and started again; containers do not notice.

The protocol is that of sd_notify(3): a datagram to the socket that systemd names, more often than it asks for.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog

log = structlog.get_logger()

START_S = 300
"""So long an agent may take to come up: the cards of a large node and a slow Docker need more than a sign of life."""
_OFTEN = 4
"""Signs of life in the time after which systemd ends a service without one."""


def notify(address: str, message: bytes) -> None:
    """Send a message to systemd; a name that begins with @ is an abstract one. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        channel.sendto(message, "\0" + address[1:] if address.startswith("@") else address)


def ask_for_time(address: str, limit_usec: int, tell: Callable[[str, bytes], None] = notify) -> None:
    """Let systemd wait longer for the first sign of life; nothing where it does not wait for any."""
    if not (address and limit_usec):
        return
    try:
        tell(address, b"WATCHDOG_USEC=%d" % max(limit_usec, START_S * 1_000_000))
    except OSError as error:
        log.warning("systemd gives no time to start", reason=str(error))


class Watchdog:
    """Signs of life, as long as the event loop runs and nothing that is asked says that it is stuck."""

    def __init__(
        self,
        is_stuck: Callable[[], bool],
        address: str,
        limit_usec: int,
        tell: Callable[[str, bytes], None] = notify,
    ) -> None:
        """Prepare: systemd listens at `address` and waits for so many microseconds; `tell` sends it a message."""
        self._is_stuck = is_stuck
        self._address = address
        # with its limit: it may still be that of the start
        self._sign = b"WATCHDOG_USEC=%d\nWATCHDOG=1" % limit_usec
        self._every_s = limit_usec / 1e6 / _OFTEN
        self._tell = tell

    async def run(self) -> None:
        """Give signs of life for ever; nothing where systemd does not ask for them."""
        while self._address and self._every_s:
            if self._is_stuck():
                log.error("the timetable of GPUs is stuck; systemd will start the agent again")
            else:
                try:
                    self._tell(self._address, self._sign)
                except OSError as error:
                    # the next one may come through; if none does, systemd starts the agent again
                    log.warning("systemd takes no sign of life", reason=str(error))
            await asyncio.sleep(self._every_s)
