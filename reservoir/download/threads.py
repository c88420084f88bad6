"""A few threads for many downloads, or for many files to be hashed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
# hashing runs outside of Python's lock, so a few threads use a few cores; each holds one buffer
HASHING = min(4, os.cpu_count() or 1)


def in_threads(act: Callable[[T], R], items: Iterable[T], threads: int = HASHING) -> list[R]:
    """Act on every item in a few threads; an exception stops what has not started yet."""
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(act, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
