"""A fake `nvidia-cuda-mps-server` on a socket: its clients fail with it, and with any one that has a fault.

It ends with its daemon. A client that ends while its work is in flight is a fault, as on a card, except where it was
terminated before.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.cuda.mps_control import listen

READY, FAULT, TERMINATED, WORK = b"R", b"F", b"T", b"W"
RECORD = struct.Struct("<cQ")


@dataclass
class Peer:
    """A connection: that of a client once it has come as one. Its work ends at `until`, in ns of CLOCK_MONOTONIC."""

    socket: socket.socket
    pid: int = 0
    until: int = 0
    said: bytes = b""


@dataclass
class Server:
    """The server of a user."""

    peers: dict[int, Peer] = field(default_factory=dict)
    fault: bool = False
    retires: bool = False

    @property
    def clients(self) -> list[Peer]:
        """Who uses the GPU by it."""
        return [peer for peer in self.peers.values() if peer.pid]

    def serve(self, path: Path) -> None:
        """Serve until its daemon ends, or the last client where somebody has asked for that."""
        with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
            listen(listener, path)
            for source in (listener, sys.stdin):
                selector.register(source, selectors.EVENT_READ)
            while self.clients or not self.retires:
                for key, _ in selector.select():
                    if key.fileobj is sys.stdin:
                        return
                    if key.fileobj is listener:
                        peer = Peer(listener.accept()[0])
                        self.peers[peer.socket.fileno()] = peer
                        selector.register(peer.socket, selectors.EVENT_READ)
                    elif not self._goes_on(self.peers[key.fd]):
                        selector.unregister(key.fileobj)
                        self.peers.pop(key.fd).socket.close()
                        self.fault = self.fault and bool(self.clients)

    def _goes_on(self, peer: Peer) -> bool:
        """Hear a peer; returns whether it says more."""
        said = b""
        with suppress(OSError):
            said = peer.socket.recv(4096)
        if peer.pid:
            return self._hear(peer, said)
        word, *rest = said.decode().split() or [""]
        if word == "client" and not self.fault and not self.retires:
            peer.pid, _, _ = struct.unpack("3i", peer.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            peer.socket.sendall(READY)
            return True
        self.retires = self.retires or word == "retire"
        answers = {
            "status": "FAULT" if self.fault else "ACTIVE",
            "clients": "\n".join(str(c.pid) for c in self.clients),
        }
        if word == "terminate":
            answers[word] = self._terminate(int(rest[0]))
        with suppress(OSError):
            peer.socket.sendall(answers.get(word, "").encode())
        return False

    def _hear(self, peer: Peer, said: bytes) -> bool:
        peer.said += said
        while len(peer.said) >= RECORD.size:
            what, until = RECORD.unpack(peer.said[: RECORD.size])
            peer.said = peer.said[RECORD.size :]
            if what == WORK:
                peer.until = max(peer.until, until)
            else:
                self._fail_beside(peer)
        if not said and peer.until > time.monotonic_ns():
            self._fail_beside(peer)
        return bool(said)

    def _fail_beside(self, guilty: Peer) -> None:
        self.fault = True
        for client in self.clients:
            if client is not guilty:
                with suppress(OSError):
                    client.socket.sendall(FAULT)

    def _terminate(self, pid: int) -> str:
        for client in self.clients:
            if client.pid == pid:
                client.until = 0
                client.socket.sendall(TERMINATED)
                return "0"
        return "1"


if __name__ == "__main__":
    # by itself: that user may not read the interpreter of a virtual environment
    if os.geteuid() == 0:
        os.setuid(int(sys.argv[2]))
    Server().serve(Path(sys.argv[1]))
