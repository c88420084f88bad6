"""Floods: more connections than somebody can bear, which are held for a while."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PAUSE_S = 0.01

Held = list[socket.socket]


@contextmanager
def flood(open_one: Callable[[Held, int], None], count: int) -> Iterator[Held]:
    """Hold connections, which `open_one` opens by their numbers and keeps; as some are cut, more follow."""
    held: Held = []
    over = threading.Event()

    def one_more(number: int) -> None:
        with suppress(OSError):
            open_one(held, number)

    def hold() -> None:
        number = count
        while not over.wait(PAUSE_S):
            one_more(number)
            number += 1

    for number in range(count):
        one_more(number)
    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield held
    finally:
        over.set()
        thread.join()
        for connection in held:
            connection.close()
