"""Commands inside running pods, by a WebSocket of Kubernetes: the first byte of each frame names its channel."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import TracebackType
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from appliance.agent.kubernetes.client import ANSWER_S, Client, refusal
from appliance.agent.kubernetes.pods import CONTAINER
from appliance.agent.labels import name_of
from common.errors import UnavailableError
from common.protocol import STALLED_S, STDERR, STDOUT

HALF_CLOSING = Subprotocol("v5.channel.k8s.io")
"""The protocol that can end the input alone; clusters before 1.30 may not know it."""
PLAIN = Subprotocol("v4.channel.k8s.io")
STDIN, ERROR, RESIZE, CLOSE = 0, 3, 4, 255
_OUTPUTS = (bytes([STDOUT]), bytes([STDERR]))


class Terminal:
    """One command in one pod; use it as an asynchronous context manager, which hangs it up at the end."""

    def __init__(self, client: Client, identity: str, command: list[str], *, tty: bool) -> None:
        """Prepare; nothing is started yet."""
        self._client = client
        self._identity = identity
        query = [("container", CONTAINER), ("stdin", "true"), ("stdout", "true")]
        # with a terminal both outputs are one
        query += [("tty", "true")] if tty else [("stderr", "true")]
        query += [("command", word) for word in command]
        self._query = urlencode(query)
        self._connection: ClientConnection
        self._code: int | None = None
        self._reason = ""

    async def __aenter__(self) -> Terminal:
        """Start the command; raises PenstockError where the container does not run."""
        url = f"{self._client.url.replace('http', 'ws', 1)}{self._client.pods}/{name_of(self._identity)}/exec"
        try:
            self._connection = await connect(
                f"{url}?{self._query}",
                ssl=self._client.context,
                subprotocols=[HALF_CLOSING, PLAIN],
                additional_headers=self._client.token.headers(),
                open_timeout=ANSWER_S,
                ping_timeout=STALLED_S,
                max_size=None,
                compression=None,
                proxy=None,
            )
        except InvalidStatus as error:
            raise refusal(error.response.status_code, bytes(error.response.body or b"")) from error
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise UnavailableError(
                f"the cluster does not open the terminal: {error}", where="exec", hint="look at its API servers"
            ) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream; a command with a terminal is hung up by that."""
        await self._connection.close()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield what the command writes, with the output that it is of, until it ends."""
        try:
            async for frame in self._connection:
                data = frame if isinstance(frame, bytes) else frame.encode()
                channel, data = data[:1], data[1:]
                if channel in _OUTPUTS and data:
                    yield channel[0], data
                elif channel == bytes([ERROR]) and data:
                    self._code, self._reason = outcome(data)
        except ConnectionClosed as error:
            self._reason = self._reason or str(error)

    async def write(self, data: bytes) -> None:
        """Give the command input."""
        await self._send(bytes([STDIN]) + data)

    async def write_eof(self) -> None:
        """Tell the command that its input has ended; an older cluster can only end all of it, and is told nothing."""
        if self._connection.subprotocol == HALF_CLOSING:
            await self._send(bytes([CLOSE, STDIN]))

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the terminal."""
        await self._send(bytes([RESIZE]) + json.dumps({"Width": cols, "Height": rows}).encode())

    async def exit_code(self) -> int:
        """Return the exit code of a command whose output has ended; raises UnavailableError where none was told."""
        if self._code is None:
            raise UnavailableError(
                f"the cluster did not tell how the command ended: {self._reason or 'the stream was cut'}",
                where="exec",
                hint="look at the machine of the session",
            )
        return self._code

    async def _send(self, frame: bytes) -> None:
        try:
            await self._connection.send(frame)
        except ConnectionClosed:
            # its end is told by the output
            return


def outcome(status: bytes) -> tuple[int | None, str]:
    """Return the exit code that a status of Kubernetes tells, None where it tells none, and its words."""
    told = json.loads(status)
    if told.get("status") == "Success":
        return 0, ""
    causes = (told.get("details") or {}).get("causes") or []
    codes = [int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"]
    return (codes[0] if codes else None), str(told.get("message", ""))
