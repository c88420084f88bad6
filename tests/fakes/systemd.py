"""As much of systemd as a service needs whose descriptors are to outlive it: it takes them, and hands them on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_MOST = 16
_STOP = b"stop"
_LAUNCH = """
import fcntl, os, sys
at = sys.argv.index("--")
high = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 500) for word in sys.argv[1:at]]
for position, descriptor in enumerate(high):
    os.dup2(descriptor, 3 + position, inheritable=True)
    os.close(descriptor)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[at + 1], sys.argv[at + 1:])
"""


class FakeSystemd:
    """Listens at a socket as NOTIFY_SOCKET names it; `stored` leads from names to copies of descriptors."""

    def __init__(self, folder: Path) -> None:
        self.address = folder / "notify"
        self.stored: dict[str, list[int]] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.address))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def run(self, words: Sequence[str | Path], env: dict[str, str], **more: Any) -> subprocess.Popen[bytes]:
        """Start a service with what is kept for it."""
        kept = [(name, descriptor) for name, found in self.stored.items() for descriptor in found]
        listen = {"LISTEN_FDS": str(len(kept)), "LISTEN_FDNAMES": ":".join(name for name, _ in kept)} if kept else {}
        descriptors = [descriptor for _, descriptor in kept]
        command = [sys.executable, "-c", _LAUNCH, *map(str, descriptors), "--", *map(str, words)]
        environment = env | listen | {"NOTIFY_SOCKET": str(self.address), "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, env=environment, pass_fds=descriptors, **more)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(_STOP, str(self.address))
        self._thread.join()
        self._socket.close()
        for descriptors in self.stored.values():
            for descriptor in descriptors:
                os.close(descriptor)

    def _run(self) -> None:
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._socket, 4096, _MOST)
            if message == _STOP:
                return
            told = dict(line.partition("=")[::2] for line in message.decode().splitlines())
            if "FDSTORE" in told:
                self.stored.setdefault(told["FDNAME"], []).extend(descriptors)
            elif "FDSTOREREMOVE" in told:
                for descriptor in self.stored.pop(told["FDNAME"], []):
                    os.close(descriptor)
