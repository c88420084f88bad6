"""A WebSocket over TLS for tests that wait.

The synchronous client of websockets reads in one thread and writes in another, which OpenSSL does not allow: under load
about one opening in 300 is never answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from websockets.asyncio import client
from websockets.exceptions import ConnectionClosedOK


class WebSocket:
    """A connection that is open; a method waits until it is done."""

    def __init__(self, portal: BlockingPortal, connection: client.ClientConnection) -> None:
        """Use a connection of the portal's thread."""
        self._portal = portal
        self._connection = connection

    def send(self, frame: str | bytes) -> None:
        """Send a frame."""
        self._portal.call(self._connection.send, frame)

    def recv(self, timeout: float | None = None) -> Any:
        """Return the next frame; raises TimeoutError after so many seconds, ConnectionClosed at the end."""

        async def next_frame() -> Any:
            return await asyncio.wait_for(self._connection.recv(), timeout)

        return self._portal.call(next_frame)

    def __iter__(self) -> Iterator[Any]:
        """Yield the frames until the other side closes well."""
        while True:
            try:
                yield self.recv()
            except ConnectionClosedOK:
                return


@contextmanager
def connect(url: str, **options: Any) -> Iterator[WebSocket]:
    """Open a WebSocket, and close it at the end."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(client.connect(url, proxy=None, **options)) as connection,
    ):
        yield WebSocket(portal, connection)
