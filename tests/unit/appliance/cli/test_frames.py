"""Frames of a command in a session, as commands and terminals read them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from appliance.cli import remote_command, terminal

FRAMES: list[str | bytes] = [
    json.dumps({"type": "hint", "reason": "only a later release says so"}),
    b"out",
    json.dumps({"type": "stream", "code": 2}),
    json.dumps({"type": "hint", "code": 7}),
    b"err",
    json.dumps({"type": "exit", "code": 3}),
]


class Connection:
    """A connection that says `FRAMES`."""

    def __init__(self) -> None:
        self._frames = iter(FRAMES)

    async def recv(self) -> str | bytes:
        return next(self._frames)

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        for frame in FRAMES:
            yield frame


def test_a_command_passes_over_frames_of_a_later_release() -> None:
    connection: Any = Connection()
    with start_blocking_portal() as portal:
        command = remote_command.RemoteCommand(portal, connection)
        assert command.exit_code() == 3
    assert command.errors == b"err"


def test_a_terminal_passes_over_frames_of_a_later_release(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, bytes]] = []
    monkeypatch.setattr(terminal, "_write", lambda output, data: written.append((output, data)))
    connection: Any = Connection()
    assert asyncio.run(terminal._show_output(connection)) == 3
    assert written == [(1, b"out"), (2, b"err")]
