"""What comes over the socket of sandboxes, from whoever speaks there."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.agent.sandbox import seccomp_listener
from appliance.agent.sandbox.seccomp_listener import SeccompListener

WAIT_S = 5


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a listener, and waits for nobody for long."""
    monkeypatch.setattr(seccomp_listener, "_HELLO_S", 0.2)
    path = tmp_path / "agent.sock"
    listener = SeccompListener(path)
    listener.start()
    yield path
    listener.close()


@pytest.mark.parametrize(
    ("word", "ends"),
    [
        (b'{"fds": [', True),
        (b'{"fds": [', False),
        ('{"metadata": "ü'.encode()[:-1], True),
        (b"[1]", True),
        (b'{"fds": ["seccompFd"]}', True),
        (b'{"fds": ["seccompFd"], "metadata": "{}"}', True),
    ],
    ids=["cut", "silent", "cut in a letter", "no object", "no sandbox", "another sandbox"],
)
def test_of_what_is_not_understood_no_descriptor_stays_open(listening: Path, word: bytes, ends: bool) -> None:
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX) as runtime, os.fdopen(reading, "rb") as pipe:
        runtime.connect(str(listening))
        socket.send_fds(runtime, [word], [writing])
        os.close(writing)
        if ends:
            runtime.shutdown(socket.SHUT_WR)
        # the pipe ends when the last copy of its other end is closed
        assert select.select([pipe], [], [], WAIT_S)[0], "a copy of the descriptor is left"
        assert pipe.read() == b""


def test_nobody_but_the_agents_user_may_speak_there(listening: Path) -> None:
    assert listening.stat().st_mode & 0o777 == 0o600
