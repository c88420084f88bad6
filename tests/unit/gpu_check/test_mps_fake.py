"""The fake MPS: nobody is turned away by a daemon or a server that is about to listen."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from pathlib import Path

from tests.fakes.cuda.mps_control import listen


class Slow(socket.socket):
    """A socket of a process that the kernel lets wait before it listens."""

    def listen(self, *arguments: int) -> None:
        time.sleep(0.2)
        super().listen(*arguments)


def test_who_finds_a_socket_is_heard_there() -> None:
    # short, for a socket's path may have 107 characters
    with tempfile.TemporaryDirectory() as name, Slow(socket.AF_UNIX) as slow, socket.socket(socket.AF_UNIX) as client:
        path = Path(name, "control")
        begins = threading.Thread(target=listen, args=(slow, path))
        begins.start()
        while not path.exists():
            time.sleep(0.001)
        client.connect(str(path))
        begins.join()


def test_a_socket_that_a_killed_daemon_has_left_is_replaced() -> None:
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as client:
        path = Path(name, "control")
        for _ in range(2):
            listener = socket.socket(socket.AF_UNIX)
            listen(listener, path)
            listener.close()
        with socket.socket(socket.AF_UNIX) as listener:
            listen(listener, path)
            client.connect(str(path))
