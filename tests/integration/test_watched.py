"""Services of others that systemd watches: a sign of life for each answer, and none while one hangs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EVERY_S = 0.25
SERVER = """
import http.server, os, signal, socketserver, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def address_string(self): return ""
    def log_message(self, *_): pass
    def do_HEAD(self):
        self.send_response(200); self.end_headers()
socketserver.UnixStreamServer(sys.argv[1], Answer).serve_forever()
"""
NO_SERVER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1]); listening.listen()
    while True:
        with listening.accept()[0] as channel:
            channel.sendall(b"who is there?")
"""


@pytest.fixture
def signs(tmp_path: Path) -> Iterator[socket.socket]:
    """Where systemd would hear signs of life."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        yield heard


def start(folder: Path, program: str) -> subprocess.Popen[bytes]:
    words: list[str | Path] = [sys.executable, "-m", "common.watched", "--http", folder / "socket", "--"]
    said = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": str(int(EVERY_S * 4e6))}
    return subprocess.Popen([*words, sys.executable, "-c", program, folder / "socket"], env={**os.environ, **said})


def hears(signs: socket.socket, within_s: float) -> bool:
    signs.settimeout(within_s)
    try:
        return signs.recv(64) == b"WATCHDOG=1"
    except TimeoutError:
        return False


def test_a_server_gives_signs_of_life_until_it_hangs_and_when_it_goes_on(tmp_path: Path, signs: socket.socket) -> None:
    with start(tmp_path, SERVER) as server:
        try:
            assert hears(signs, 60)
            os.kill(server.pid, signal.SIGSTOP)
            while hears(signs, 4 * EVERY_S):
                continue
            assert not hears(signs, 8 * EVERY_S)
            os.kill(server.pid, signal.SIGCONT)
            assert hears(signs, 60)
        finally:
            server.kill()


def test_whoever_takes_connections_and_speaks_no_http_gives_none(tmp_path: Path, signs: socket.socket) -> None:
    with start(tmp_path, NO_SERVER) as program:
        try:
            assert not hears(signs, 10 * EVERY_S)
            assert program.poll() is None
        finally:
            program.kill()
