"""HTTP/1.1, as little as simulated agents need: thousands of them must cost less than what they measure."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import Problem
from common.problem import document, item


@dataclass(frozen=True)
class Request:
    """A request; `path` has no query."""

    method: str
    path: str
    body: bytes


@dataclass(frozen=True)
class Answer:
    """An answer; a text is sent as UTF-8."""

    status: int
    body: bytes | str


Handler = Callable[[Request], Awaitable[Answer]]


def problem(status: int, reason: str) -> Answer:
    """Return a refusal as our services write it."""
    told = document(status, [item(Problem("id", reason, "look at the test"), {"id"})], "0")
    return Answer(status, json.dumps(told))


class Server:
    """Serves on a loopback port; a handler that raises EOFError hangs up."""

    def __init__(self, handler: Handler) -> None:
        """Prepare; nothing listens yet."""
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self, port: int, context: ssl.SSLContext) -> int:
        """Listen on a port, 0: any; returns it."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, ssl=context)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Hang up on everybody."""
        if self._server:
            self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                answer = await self._handler(await _read_request(reader))
                body = answer.body.encode() if isinstance(answer.body, str) else answer.body
                writer.write(f"HTTP/1.1 {answer.status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):  # the loop ends
            writer.close()
        finally:
            self._open.discard(writer)


@dataclass
class Client:
    """One connection that is kept open, to a unix socket or a TLS port of this machine; raises OSError, EOFError."""

    port: int = 0
    context: ssl.SSLContext | None = None
    socket: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes) -> Answer:
        """Send a JSON body and return the answer."""
        try:
            reader, writer = self._streams = self._streams or await self._connect()
            extra = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            head = f"{method} {path} HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\n{extra}"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            first, length = await _read_head(reader)
            return Answer(int(first[1]), await reader.readexactly(length))
        except (OSError, EOFError):
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection; the next call opens another."""
        if self._streams:
            self._streams[1].close()
        self._streams = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.socket:
            return await asyncio.open_unix_connection(str(self.socket))
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)


async def _read_request(reader: asyncio.StreamReader) -> Request:
    first, length = await _read_head(reader)
    return Request(first[0], first[1].partition("?")[0], await reader.readexactly(length))


async def _read_head(reader: asyncio.StreamReader) -> tuple[list[str], int]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return lines[0].split(" ", 2), int(fields.get("content-length", 0))
