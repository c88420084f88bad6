"""Ports of containers, offered to the site's edge by mutual TLS and to nobody else.

A container's port is never published on the host. The agent listens on a port of its own range and passes bytes on to
the container's address, so HTTP, WebSocket and whatever else begins with a request go through unchanged. The head of
that names the container which the edge wants: a port may lead to another one than the edge was last told. It also
names by whose login or key it comes, so that what is open ends with the right to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import structlog

from appliance.agent.listener import Listener, Strangers
from appliance.agent.tls import common_name
from common.app_protocol import CALLER_HEADER, CONTAINER_HEADER, MAX_CALLER
from common.errors import UnavailableError

log = structlog.get_logger()

MAX_CONNECTIONS = 256
"""Most connections of one container at a time."""
CHUNK = 1 << 16
_CONNECT_S = 5.0
_HEAD_S = 10.0
_FIELDS = tuple(name.lower().encode() for name in (CONTAINER_HEADER, CALLER_HEADER))


@dataclass
class _OpenPorts:
    """What is open for one container."""

    address: str
    listeners: dict[int, Listener] = field(default_factory=dict)
    connections: dict[asyncio.Task[None], str | None] = field(default_factory=dict)
    """And by whose login or key each of them came; None before it has said so."""


class PortForwarder:
    """All ports of all containers of this node."""

    def __init__(
        self,
        context: ssl.SSLContext,
        names: Collection[str],
        *,
        bind: str,
        port_range: tuple[int, int],
        strangers: Strangers,
        most: int,
    ) -> None:
        """Prepare; `names` are the common names of the certificates that may come, `most` is how many connections there
        may be at a time.
        """
        self._strangers = strangers
        self._most = most
        self._context = context
        self._names = names
        self._bind = bind
        self._first, self._last = port_range
        self._open: dict[str, _OpenPorts] = {}

    async def open(self, identity: str, address: str, ports: Sequence[int]) -> dict[int, int]:
        """Offer the ports of a container that has an address; return which port of ours leads to which of its ports.

        What is open already stays. Raises UnavailableError where no port of the range is free, or the container has no
        address: an empty one would lead to this machine itself.
        """
        if not address:
            raise _refusal(identity, ports[0], "the container has no address")
        opened = self._open.setdefault(identity, _OpenPorts(address))
        opened.address = address
        for port in ports:
            if port not in opened.listeners:
                opened.listeners[port] = self._listen(identity, opened, port)
        return {port: listener.port for port, listener in opened.listeners.items()}

    async def close(self, identity: str) -> None:
        """Close what is open for a container, and the connections to it."""
        opened = self._open.pop(identity, None)
        if opened is None:
            return
        for listener in opened.listeners.values():
            listener.close()
        tasks = list(opened.connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def callers(self) -> set[tuple[str, str]]:
        """Return who has connections to which container: pairs of the container's id and the caller."""
        return {
            (identity, caller)
            for identity, opened in self._open.items()
            for caller in opened.connections.values()
            if caller is not None
        }

    def cut(self, identity: str, caller: str) -> None:
        """End the connections that a caller has to a container."""
        opened = self._open.get(identity)
        for task, whose in list(opened.connections.items()) if opened else ():
            if whose == caller:
                task.cancel()

    async def close_all(self) -> None:
        """Close everything."""
        for identity in list(self._open):
            await self.close(identity)

    def _listen(self, identity: str, opened: _OpenPorts, port: int) -> Listener:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(identity, opened, port, reader, writer)

        def protocol() -> asyncio.Protocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=CHUNK), connected)

        size = self._last - self._first + 1
        # the same container gets the same port after a restart of the agent, unless somebody else has taken it
        begin = zlib.crc32(f"{identity}:{port}".encode()) % size
        for step in range(size):
            number = self._first + (begin + step) % size
            listener = Listener(self._strangers, self._context, self._names, protocol)
            try:
                listener.open(self._bind, number)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise _refusal(identity, port, str(error)) from error
            else:
                return listener
        raise _refusal(identity, port, f"every port from {self._first} to {self._last} is in use")

    async def _serve(
        self, identity: str, opened: _OpenPorts, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has one
        opened.connections[task] = None
        try:
            name = common_name(writer.get_extra_info("peercert"))
            if name not in self._names:
                log.warning("a port of a session was called by a stranger", peer=name, port=port)
            elif len(opened.connections) > MAX_CONNECTIONS:
                log.warning("a session has too many connections", port=port, most=MAX_CONNECTIONS)
            elif sum(len(each.connections) for each in self._open.values()) > self._most:
                log.warning("sessions have too many connections together", port=port, most=self._most)
            else:
                (wanted, caller), head = take_named(await _head(reader))
                if wanted == identity:
                    opened.connections[task] = caller[:MAX_CALLER]
                    await _join(reader, writer, opened.address, port, head)
                else:
                    log.warning("a port of a session was called for another", id=identity, wanted=wanted, port=port)
        except asyncio.CancelledError:
            # the container is gone, or the agent ends: that is the end of this connection and no error
            return
        finally:
            opened.connections.pop(task, None)
            writer.close()


def take_named(head: bytes) -> tuple[tuple[str, str], bytes]:
    """Return the container's id and the caller that the head of a request names, and the head without these names.

    They are no business of the container's. What is not named, or more than once, is empty.
    """
    lines = head.split(b"\r\n")
    named = [[line for line in lines if line.partition(b":")[0].lower() == field] for field in _FIELDS]
    rest = b"\r\n".join(line for line in lines if not any(line in found for found in named))
    container, caller = (
        found[0].partition(b":")[2].strip().decode("latin-1") if len(found) == 1 else "" for found in named
    )
    return (container, caller), rest


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Return the head of a request; empty where none comes."""
    try:
        async with asyncio.timeout(_HEAD_S):
            return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
        return b""


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, port: int, head: bytes
) -> None:
    """Carry bytes both ways until one side ends; the `head` has come already."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            inner_reader, inner_writer = await asyncio.open_connection(address, port, limit=CHUNK)
    except (OSError, TimeoutError):
        # the edge tells its caller that nothing answers there
        return
    inner_writer.write(head)
    # TLS knows no half of a connection: where one side has ended, nothing of use can follow
    tasks = [
        asyncio.create_task(_carry(reader, inner_writer)),
        asyncio.create_task(_carry(inner_reader, writer)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        inner_writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()


def _refusal(identity: str, port: int, reason: str) -> UnavailableError:
    return UnavailableError(
        f"port {port} of {identity} cannot be offered to the edge: {reason}",
        where="ports",
        hint="look at the container's network, and at PENSTOCK_AGENT_PORT_RANGE",
    )
