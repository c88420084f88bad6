"""A fake `nvidia-cuda-mps-control`: with -f the daemon (with -M for all users), else a command of its input for that.

Daemon and server (`mps_server.py`) are processes of their own; the server belongs to a user, and ends with its daemon.
Commands, answers and what a client hears are those of driver 580.159 on an H200.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

NO_DAEMON = "Cannot find MPS control daemon process"
LOOK_S = 0.02
ROOT = Path(__file__).parents[3]


def ask(path: Path, what: str) -> str:
    """Say something to a daemon or a server and return the answer; raises OSError where there is nobody."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(what.encode())
        return client.recv(4096).decode()


def listen(listener: socket.socket, path: Path) -> None:
    """Listen at a path that is not there before somebody is heard at it."""
    begun = path.with_suffix(".begun")
    begun.unlink(missing_ok=True)
    listener.bind(str(begun))
    begun.chmod(0o666)
    listener.listen()
    begun.rename(path)


@dataclass
class Server:
    """The server of a user, as its daemon sees it."""

    user: int
    path: Path
    process: subprocess.Popen[bytes]

    @property
    def runs(self) -> bool:
        """Whether it lives and listens."""
        return self.process.poll() is None and self.path.exists()


@dataclass
class Daemon:
    """The daemon of a folder of pipes."""

    folder: Path
    all_users: bool = False
    server: Server | None = None
    waiting: list[tuple[socket.socket, int]] = field(default_factory=list)
    quits: socket.socket | None = None
    until: float = float("inf")

    def serve(self) -> None:
        """Answer until somebody says that it is over."""
        control = self.folder / "control"
        with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
            listen(listener, control)
            selector.register(listener, selectors.EVENT_READ)
            while not self._is_over():
                for _ in selector.select(LOOK_S):
                    self._answer(listener.accept()[0])
                self._admit()
            control.unlink(missing_ok=True)

    def _answer(self, client: socket.socket) -> None:
        said = client.recv(64).decode()
        command, *words = said.split()
        if command == "client":
            _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            self.waiting.append((client, user))
            return
        if command == "quit":
            self.quits = client
            if words[:1] == ["-t"]:
                self.until = time.monotonic() + float(words[1])
            self._retire()
            return
        alive = self.server if self.server and self.server.runs else None
        answer = ""
        asked = {"get_server_status": "status", "get_client_list": "clients", "terminate_client": "terminate"}
        if command == "get_server_list" and alive:
            answer = str(alive.process.pid)
        elif command in asked and alive and words[:1] == [str(alive.process.pid)]:
            answer = ask(alive.path, " ".join([asked[command], *words[1:]]))
        client.sendall(f"{answer}\n".encode())
        client.close()

    def _admit(self) -> None:
        """Give servers to clients that wait for one, and nothing to those who come too late."""
        if self.quits:
            for client, _ in self.waiting:
                client.close()
            self.waiting.clear()
        if not self.waiting:
            return
        if self.server is None or self.server.process.poll() is not None:
            self.server = self._started(self.waiting[0][1])
        if not self.server.runs:
            return
        for client, user in list(self.waiting):
            if user != self.server.user and not self.all_users:
                self._retire()
                continue
            self.waiting.remove((client, user))
            with suppress(OSError):
                client.sendall(str(self.server.path).encode())
            client.close()

    def _started(self, user: int) -> Server:
        path = self.folder / f"server-{time.monotonic_ns()}"
        user = 0 if self.all_users else user
        command = [sys.executable, "-m", "tests.fakes.cuda.mps_server", str(path), str(user)]
        # its input ends with us
        return Server(user, path, subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT))

    def _retire(self) -> None:
        """Let the server end with its last client."""
        if self.server and self.server.runs:
            with suppress(OSError):
                ask(self.server.path, "retire")

    def _is_over(self) -> bool:
        if not self.quits:
            return False
        if self.server and self.server.process.poll() is None:
            if time.monotonic() < self.until:
                return False
            self.server.process.kill()
            self.server.process.wait()
        self.quits.close()
        return True


def main(arguments: list[str]) -> int:
    """Be the daemon, or tell it something."""
    folder = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    if "-f" in arguments:
        with suppress(OSError):
            ask(folder / "control", "get_server_list")
            print("An instance of this daemon is already running")
            return 1
        Daemon(folder, "-M" in arguments).serve()
        return 0
    try:
        print(ask(folder / "control", sys.stdin.read().strip()).strip())
    except OSError:
        print(NO_DAEMON)
        return 1
    return 0


def install(folder: Path) -> Path:
    """Put the program into a folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__)} "$@"\n')
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
