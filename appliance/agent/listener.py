"""Listeners: the agent's ports for mutual TLS. Who shows no certificate that is known holds little, and not for long.

A handshake that means well takes milliseconds. So where too many are under way the oldest ends, and a caller that is
known gets in whoever else stands before the listener.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection

import structlog

from appliance.agent.tls import common_name

log = structlog.get_logger()

STRANGER_S = 5.0
"""So long a handshake may take, and so long a caller that is not known may stay."""
MOST = 512
MOST_OF_ADDRESS = 256
"""Strangers at a time, on all listeners together and of one address. The edge shakes hands for each call of an app."""
BACKLOG = 1024
_PAUSE_S = 1.0


class Strangers:
    """Connections of callers that are not known yet, or will not be, on all listeners of an agent."""

    def __init__(self, most: int = MOST, most_of_address: int = MOST_OF_ADDRESS) -> None:
        """Start with none."""
        self._most = most
        self._most_of_address = most_of_address
        self._waiting: dict[asyncio.Task[None], str] = {}

    def admit(self, address: str, task: asyncio.Task[None]) -> None:
        """Count a task until it has ended; the oldest one is cancelled where there are too many."""
        same = [task for task, other in self._waiting.items() if other == address]
        if len(same) >= self._most_of_address:
            self._end(same[0])
        elif len(self._waiting) >= self._most:
            self._end(next(iter(self._waiting)))
        self._waiting[task] = address
        task.add_done_callback(lambda done: self._waiting.pop(done, None))

    def _end(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        task.cancel()


class Listener:
    """One port: each caller whose handshake succeeds gets a protocol of `make`; those of `names` may stay."""

    def __init__(
        self,
        strangers: Strangers,
        context: ssl.SSLContext,
        names: Collection[str],
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        """Prepare; nothing is open yet."""
        self._strangers = strangers
        self._context = context
        self._names = names
        self._make = make
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self.port = 0

    def open(self, bind: str, port: int) -> None:
        """Listen on a port, 0 for any; raises OSError. To be called where the event loop runs."""
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.create_server((bind, port), family=family, backlog=BACKLOG)
        self._listener.setblocking(False)
        self._await(self._listener)
        self.port = self._listener.getsockname()[1]

    def close(self) -> None:
        """Let nobody in any more; who is in stays."""
        if self._listener:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in self._tasks:
            task.cancel()

    def _await(self, listener: socket.socket) -> None:
        if listener is self._listener:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # the caller has gone again
            return
        except OSError as error:
            log.warning("a connection cannot be taken", reason=str(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(_PAUSE_S, self._await, listener)
            return
        task = asyncio.create_task(self._greet(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._strangers.admit(str(address[0]), task)

    async def _greet(self, connection: socket.socket) -> None:
        """Shake hands; who is not known is heard for a moment, so as to be told why, and then cut."""
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                self._make, connection, ssl=self._context, ssl_handshake_timeout=STRANGER_S
            )
        except OSError:
            # no handshake, or none of the site: there is nobody to tell
            return
        if common_name(transport.get_extra_info("peercert")) in self._names:
            return
        try:
            await asyncio.sleep(STRANGER_S)
        finally:
            # the transport of a connection that has gone meanwhile has nothing left to end
            if not transport.is_closing():
                transport.abort()
