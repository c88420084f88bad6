"""A shell in a session: the user's terminal, or piped input, joined with the container by a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from appliance.client import Client
from appliance.client.transport import CONNECT_S
from common.errors import PenstockError, UnavailableError, kind_of

SHELL = ["sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi"]
_CHUNK = 1 << 16
_INPUT, _OUTPUT = 0, 1


def run(client: Client, name: str, project: str) -> int:
    """Run a shell in a session until it ends and return its exit code; raises PenstockError where there can be none."""
    has_terminal = os.isatty(_INPUT) and os.isatty(_OUTPUT)
    rows, cols = _size() if has_terminal else (24, 80)
    address = client.sessions.shell(name, SHELL, project=project, tty=has_terminal, rows=rows, cols=cols)
    try:
        return asyncio.run(_converse(client, address, has_terminal))
    except InvalidStatus as error:
        raise client.refusal(error.response.status_code, bytes(error.response.body or b"")) from error
    except InvalidHandshake as error:
        raise UnavailableError(
            f"the terminal cannot be opened: {error}", where=client.url, hint="check the address of the API"
        ) from error
    except OSError as error:
        raise client.unreachable(error) from error


async def _converse(client: Client, address: str, has_terminal: bool) -> int:
    async with connect(
        address,
        ssl=client.tls(),
        additional_headers=client.headers,
        compression=None,
        proxy=None,
        max_size=None,
        open_timeout=CONNECT_S,
    ) as connection:
        with _raw() if has_terminal else contextlib.nullcontext():
            sending = asyncio.create_task(_send_input(connection, has_terminal))
            try:
                return await _show_output(connection)
            finally:
                sending.cancel()


async def _show_output(connection: ClientConnection) -> int:
    try:
        async for frame in connection:
            if isinstance(frame, bytes):
                _write(frame)
                continue
            control = json.loads(frame)
            if control["type"] == "exit":
                return int(control["code"])
            raise (
                kind_of(control["status"])(control["reason"])
                if control.get("status")
                else PenstockError(control["reason"])
            )
    except ConnectionClosed:
        pass
    raise UnavailableError(
        "the connection to the session was lost", where="bash", hint="look with `penstock get NAME`, and try again"
    )


async def _send_input(connection: ClientConnection, has_terminal: bool) -> None:
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    # a thread, because files cannot be waited for; it is left behind in its read when the shell ends
    threading.Thread(target=_read_input, args=(loop, keys), daemon=True).start()
    resizing = None
    if has_terminal:
        loop.add_signal_handler(signal.SIGWINCH, lambda: sizes.put_nowait(_size()))
        resizing = asyncio.create_task(_send_sizes(connection, sizes))
    with contextlib.suppress(ConnectionClosed):
        while data := await keys.get():
            await connection.send(data)
        await connection.send(json.dumps({"type": "eof"}))
    if resizing:
        await resizing


async def _send_sizes(connection: ClientConnection, sizes: asyncio.Queue[tuple[int, int]]) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            rows, cols = await sizes.get()
            await connection.send(json.dumps({"type": "resize", "rows": rows, "cols": cols}))


def _read_input(loop: asyncio.AbstractEventLoop, keys: asyncio.Queue[bytes]) -> None:
    data = b"first"
    while data:
        try:
            data = os.read(_INPUT, _CHUNK)
        except OSError:
            data = b""
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(keys.put_nowait, data)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(_OUTPUT)
    return size.lines, size.columns


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Hand every key to the session as it is, and give the terminal back afterwards."""
    before: list[Any] = termios.tcgetattr(_INPUT)
    # what was typed ahead belongs to the session too, so it is not flushed
    tty.setraw(_INPUT, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(_INPUT, termios.TCSADRAIN, before)
