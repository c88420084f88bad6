"""Signs of life of a real API, as systemd gets them: they come for work, and stop when it does."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.agent.calls import suspend
from tests.integration.agent.conftest import Authority, authority  # noqa: F401
from tests.integration.test_api_server import SERVE, environment  # noqa: F401

LIMIT_S = 4
COME_S = 60


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        yield listener


@pytest.fixture
def api(
    environment: dict[str, str],  # noqa: F811
    systemd: socket.socket,
) -> Iterator[subprocess.Popen[bytes]]:
    told = {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": str(LIMIT_S * 1_000_000)}
    process = subprocess.Popen(SERVE, env=environment | told)
    yield process
    process.kill()
    process.wait()


def signs(systemd: socket.socket, within_s: float) -> bool:
    """Whether a sign of life comes within so many seconds; what came before does not count."""
    systemd.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            systemd.recv(256)
    systemd.settimeout(within_s)
    try:
        return b"WATCHDOG=1" in systemd.recv(256)
    except TimeoutError:
        return False


def test_signs_of_an_api_stop_with_its_work_and_come_back_with_it(
    api: subprocess.Popen[bytes],
    systemd: socket.socket,
    environment: dict[str, str],  # noqa: F811
) -> None:
    systemd.settimeout(60)
    assert systemd.recv(256) == b"WATCHDOG_USEC=300000000", "to start may take longer"
    assert systemd.recv(256) == b"WATCHDOG_USEC=4000000\nWATCHDOG=1"
    suspend(api.pid)
    assert not signs(systemd, LIMIT_S)
    api.send_signal(signal.SIGCONT)
    assert signs(systemd, COME_S)
    # who cannot reach it is not helped by its being there
    Path(environment["PENSTOCK_API_SOCKET"]).unlink()
    deadline = time.monotonic() + COME_S
    while signs(systemd, LIMIT_S):
        assert time.monotonic() < deadline
