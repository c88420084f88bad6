"""A command in a session as this program uses it: its output is read as a file, its input written as one.

All of its TLS happens in one thread: OpenSSL lets no two use a connection at once, and a thread that waits in a read is
not woken by another that closes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from anyio.from_thread import BlockingPortal, start_blocking_portal
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from appliance.client.place import Place, error_of, lost
from common.protocol import STDERR, STDOUT

_LAST = 4096
"""Bytes that are kept of what it says of errors."""


class RemoteCommand:
    """A command that runs; `errors` is the end of what it has said of them."""

    def __init__(self, portal: BlockingPortal, connection: ClientConnection) -> None:
        """Use a connection of its own, which lives in the portal's thread."""
        self._portal = portal
        self._connection = connection
        self._output = STDOUT
        self._unread = b""
        self._code: int | None = None
        self.errors = b""

    def read(self, size: int) -> bytes:
        """Return so many bytes of its output, fewer where that ends."""
        parts = []
        while size and (self._unread or self._receive()):
            part, self._unread = self._unread[:size], self._unread[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def write(self, data: bytes) -> int:
        """Give it input; BrokenPipeError where it takes no more."""
        try:
            self._portal.call(self._connection.send, data)
        except ConnectionClosed as error:
            raise BrokenPipeError from error
        return len(data)

    def end_input(self) -> None:
        """Tell it that its input has ended."""
        self.write_control({"type": "eof"})

    def write_control(self, control: dict[str, str]) -> None:
        """Send a control frame; one that has ended takes none."""
        try:
            self._portal.call(self._connection.send, json.dumps(control))
        except ConnectionClosed:
            return

    def exit_code(self) -> int:
        """Return its exit code when it has ended; what it still writes is of no use."""
        while self._receive():
            self._unread = b""
        assert self._code is not None  # noqa: S101 - what else ends the output raises
        return self._code

    def _receive(self) -> bool:
        """Take frames until there is output; returns False where it has ended."""
        while self._code is None:
            try:
                frame = self._portal.call(self._connection.recv)
            except ConnectionClosed as error:
                raise lost() from error
            if isinstance(frame, str):
                self._follow(frame)
            elif self._output == STDERR:
                self.errors = (self.errors + frame)[-_LAST:]
            elif frame:
                self._unread = frame
                return True
        return False

    def _follow(self, frame: str) -> None:
        control = json.loads(frame)
        if control["type"] == "error":
            raise error_of(control)
        if control["type"] == "exit":
            self._code = int(control["code"])
        if control["type"] == "stream":
            self._output = control["code"]


@contextmanager
def running(place: Place, command: Sequence[str]) -> Iterator[RemoteCommand]:
    """Run a command; it is hung up at the end where it still runs. Raises PenstockError."""
    with place.reached(), start_blocking_portal() as portal, ExitStack() as opened:
        connection = portal.wrap_async_context_manager(connect(place.address(command), **place.options()))
        try:
            connected = opened.enter_context(connection)
        except OSError as error:
            raise place.client.unreachable(error) from error
        yield RemoteCommand(portal, connected)
