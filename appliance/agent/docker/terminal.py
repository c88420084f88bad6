"""Commands inside running containers, with or without a terminal.

The stream is opened by hand over Docker's socket: the SDK reads the answer's head through a buffer and then hands out
the bare socket, so the first bytes of a quick command may be lost in that buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
from collections.abc import AsyncIterator
from types import TracebackType

import structlog
from anyio import to_thread

from appliance.agent.docker.engine import DockerEngine
from common.errors import NotFoundError, PenstockError, UnavailableError
from common.protocol import STDERR, STDOUT

log = structlog.get_logger()

CHUNK = 1 << 16
NOT_FOUND = 127
"""What shells say of a program that is not there; engines of before say 126."""
_NOT_BEGUN = b"OCI runtime exec failed: "
_MISSING = (b"executable file not found", b"no such file or directory")
_TRIES = 40
_PAUSE_S = 0.025
_HANG_UPS = 10
_PATIENCE_S = 1.0
"""How often an engine that does not answer is asked what to hang up, and how much longer each pause is."""


class Terminal:
    """One command in one container; use it as an asynchronous context manager, which hangs it up at the end."""

    def __init__(self, engine: DockerEngine, identity: str, command: list[str], *, tty: bool) -> None:
        """Prepare; nothing is started yet."""
        self._engine = engine
        self._identity = identity
        self._command = command
        self._tty = tty
        self._id = ""
        self._is_missing = False
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Terminal:
        """Start the command; raises PenstockError where the container does not run."""
        self._id = await to_thread.run_sync(
            lambda: self._engine.exec_create(self._identity, self._command, tty=self._tty)
        )
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self._engine.socket)
        except OSError as error:
            raise _refusal(str(error)) from error
        try:
            await self._attach()
        except BaseException:
            self._writer.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream, and hang up a command that still runs."""
        self._writer.close()
        await asyncio.shield(self._hang_up())

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield what the command writes, with the output that it is of, until it ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while (found := await self._read())[1]:
                yield await self._told_apart(*found)

    async def write(self, data: bytes) -> None:
        """Give the command input."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def write_eof(self) -> None:
        """Tell the command that its input has ended."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the terminal; waits for a command that is still starting."""
        for _ in range(_TRIES):
            try:
                await to_thread.run_sync(self._engine.exec_resize, self._id, rows, cols)
            except PenstockError:
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def exit_code(self) -> int:
        """Return the exit code of a command whose output has ended, as soon as it has ended itself."""
        pause_s = _PAUSE_S
        while True:
            found = await to_thread.run_sync(self._engine.exec_inspect, self._id)
            if not found["Running"] and found["ExitCode"] is not None:
                return NOT_FOUND if self._is_missing else int(found["ExitCode"])
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    async def _attach(self) -> None:
        body = json.dumps({"Detach": False, "Tty": self._tty}).encode()
        self._writer.write(
            f"POST /v{self._engine.api_version}/exec/{self._id}/start HTTP/1.1\r\n"
            "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError) as error:
            raise _refusal(str(error)) from error
        status = head.split(b"\r\n", 1)[0].decode()
        if " 101 " not in f"{status} ":
            raise _refusal(status)

    async def _read(self) -> tuple[int, bytes]:
        if self._tty:
            return STDOUT, await self._reader.read(CHUNK)
        # without a terminal Docker sends frames: one byte that names the stream, three zeros, four bytes of length
        stream, length = struct.unpack(">B3xL", await self._reader.readexactly(8))
        return stream, await self._reader.readexactly(length)

    async def _told_apart(self, stream: int, data: bytes) -> tuple[int, bytes]:
        """Return output with where it belongs: Docker writes why a command did not begin as if the command had."""
        if not data.startswith(_NOT_BEGUN):
            return stream, data
        found = await to_thread.run_sync(self._engine.exec_inspect, self._id)
        if found["Pid"]:
            return stream, data
        self._is_missing = any(words in data for words in _MISSING)
        return STDERR, data

    async def _hang_up(self) -> None:
        """End the command; asks again where the engine does not answer, as nobody else would end it."""
        for number in range(1, _HANG_UPS + 1):
            try:
                found = await to_thread.run_sync(self._engine.exec_inspect, self._id)
            except NotFoundError:
                return
            except PenstockError as error:
                log.warning("hang-up failed", exec_id=self._id, attempt=number, error=str(error))
                await asyncio.sleep(number * _PATIENCE_S)
                continue
            if found["Running"] and found["Pid"]:
                with contextlib.suppress(ProcessLookupError):
                    # the command leads a group of its own, with what it has started
                    os.killpg(found["Pid"], signal.SIGHUP)
            return


def _refusal(reason: str) -> UnavailableError:
    return UnavailableError(
        f"Docker does not open the terminal: {reason}", where="exec", hint="see `journalctl -u docker` on the node"
    )
