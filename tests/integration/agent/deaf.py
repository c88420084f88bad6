"""A way to the Docker Engine on which every event is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def deaf_socket(real: str, path: Path) -> Iterator[Path]:
    """Give a socket that leads to the engine; of a stream of events it lets the head through and nothing else."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    open_: list[socket.socket] = [server]

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(real)
                open_.extend((client, engine))
                events = threading.Event()
                threading.Thread(target=_requests, args=(client, engine, events), daemon=True).start()
                threading.Thread(target=_answers, args=(engine, client, events), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield path
    finally:
        for each in open_:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _requests(client: socket.socket, engine: socket.socket, events: threading.Event) -> None:
    with suppress(OSError):
        while chunk := client.recv(1 << 16):
            if b"/events?" in chunk.partition(b"\r\n")[0]:
                events.set()
            engine.sendall(chunk)
        engine.shutdown(socket.SHUT_WR)


def _answers(engine: socket.socket, client: socket.socket, events: threading.Event) -> None:
    headed = False
    with suppress(OSError):
        while chunk := engine.recv(1 << 16):
            if not headed:
                client.sendall(chunk)
            headed = events.is_set()
        client.shutdown(socket.SHUT_WR)
