"""Progress of long work: what it is doing, told without knowing who listens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Is called with the step in words, the bytes done and the bytes there are (0: not known)."""

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        """Take note of the state of one step."""


def silent(step: str, done: int = 0, total: int = 0) -> None:
    """Ignore progress."""


def counter(step: str, total: int, progress: Progress) -> Callable[[int], None]:
    """Return a function that adds up bytes, from several threads too, and reports the sum of the `total`."""
    guard = threading.Lock()
    done = 0

    def note(count: int) -> None:
        nonlocal done
        with guard:
            done += count
            progress(step, done, total)

    return note
