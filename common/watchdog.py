"""Signs of life for systemd, so that a service that hangs is ended and started again.

They come more often than systemd asks for. A sign is given for work that was done, and not for being there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from common.sd_notify import notify

log = structlog.get_logger()

START_S = 300
"""So long a service may take to come up: the cards of a large node and a slow Docker need more than a sign of life."""
WHO_LOOKS = "who looks whether something hangs"
_OFTEN = 4
"""Signs of life in the time after which systemd ends a service without one."""


def ask_for_time(address: str, limit_usec: int, tell: Callable[[str, bytes], None] = notify) -> None:
    """Let systemd wait longer for the first sign of life; nothing where it does not wait for any."""
    if not (address and limit_usec):
        return
    try:
        tell(address, b"WATCHDOG_USEC=%d" % max(limit_usec, START_S * 1_000_000))
    except OSError as error:
        log.warning("systemd gives no time to start", reason=str(error))


class Watchdog:
    """Signs of life, as long as the event loop runs and what is asked finds nothing that hangs."""

    def __init__(
        self,
        what_hangs: Callable[[], Awaitable[str]],
        address: str,
        limit_usec: int,
        tell: Callable[[str, bytes], None] = notify,
    ) -> None:
        """Prepare: systemd listens at `address` and waits for so many microseconds; `tell` sends it a message.

        `what_hangs` names what of the service does no work any more; nothing means that all of it does.
        """
        self._what_hangs = what_hangs
        self._address = address
        # with its limit: it may still be that of the start
        self._sign = b"WATCHDOG_USEC=%d\nWATCHDOG=1" % limit_usec
        self._every_s = limit_usec / 1e6 / _OFTEN
        self._tell = tell

    async def run(self) -> None:
        """Give signs of life for ever; nothing where systemd does not ask for them."""
        while self._address and self._every_s:
            await asyncio.sleep(self._every_s)
            if hangs := await self._look():
                log.error("something hangs; systemd will start the service again", what=hangs)
                continue
            try:
                self._tell(self._address, self._sign)
            except OSError as error:
                # the next one may come through; if none does, systemd starts the service again
                log.warning("systemd takes no sign of life", reason=str(error))

    async def _look(self) -> str:
        try:
            async with asyncio.timeout(self._every_s):
                return await self._what_hangs()
        except TimeoutError:
            return WHO_LOOKS
        except Exception as error:
            # without a sign systemd starts the service again; without this line nobody would know why
            return f"{WHO_LOOKS}: {error or type(error).__name__}"
