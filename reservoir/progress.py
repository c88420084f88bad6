"""How long work tells what it is doing, without knowing who listens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Is called with the step in words, how much is done and how much there is (0: not known), both in bytes or items."""

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        """Take note of the state of one step."""


def silent(step: str, done: int = 0, total: int = 0) -> None:
    """Ignore progress."""
