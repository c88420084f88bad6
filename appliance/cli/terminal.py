"""A command in a session: the user's terminal, or pipes, joined with the container by a WebSocket."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import signal
import termios
import threading
import tty as terminals
from collections.abc import Iterator, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from appliance.client.place import Place, error_of, lost
from common.protocol import STDOUT

_CHUNK = 1 << 16
_AHEAD = 16
"""So many chunks of the input are read before they are sent."""
_INPUT, _OUTPUT = 0, 1


def is_there() -> bool:
    """Return whether a person sits at a terminal."""
    return os.isatty(_INPUT) and os.isatty(_OUTPUT)


def run(place: Place, command: Sequence[str], *, tty: bool) -> int:
    """Run a command until it ends and return its exit code; raises PenstockError where there can be none."""
    rows, cols = _size() if tty else (24, 80)
    address = place.address(command, tty=tty, rows=rows, cols=cols)
    with place.reached():
        return asyncio.run(_converse(place, address, tty=tty))


async def _converse(place: Place, address: str, *, tty: bool) -> int:
    try:
        connection = await connect(address, **place.options())
    except OSError as error:
        raise place.client.unreachable(error) from error
    async with connection:
        with _raw() if tty else contextlib.nullcontext():
            sending = asyncio.create_task(_send_input(connection, has_terminal=tty))
            try:
                return await _show_output(connection)
            finally:
                sending.cancel()


async def _show_output(connection: ClientConnection) -> int:
    output = STDOUT
    with contextlib.suppress(ConnectionClosed):
        async for frame in connection:
            if isinstance(frame, bytes):
                # in a thread: whoever reads slowly must not keep the connection from being answered
                await asyncio.to_thread(_write, output, frame)
                continue
            control = json.loads(frame)
            if control["type"] == "exit":
                return int(control["code"])
            if control["type"] == "error":
                raise error_of(control)
            if control["type"] == "stream":
                output = control["code"]
    raise lost()


async def _send_input(connection: ClientConnection, *, has_terminal: bool) -> None:
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD)
    sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    # a thread, because files cannot be waited for; it is left behind in its read when the command ends
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
        putting = keys.put(data)
        try:
            # waits for room: what is read faster than it can be sent must not gather here
            asyncio.run_coroutine_threadsafe(putting, loop).result()
        except (RuntimeError, asyncio.CancelledError, concurrent.futures.CancelledError):
            putting.close()
            return


def _write(output: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(output, view) :]


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(_OUTPUT)
    return size.lines, size.columns


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Hand every key to the session as it is, and give the terminal back afterwards."""
    before: list[Any] = termios.tcgetattr(_INPUT)
    # what was typed ahead belongs to the session too, so it is not flushed
    terminals.setraw(_INPUT, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(_INPUT, termios.TCSADRAIN, before)
