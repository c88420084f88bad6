"""A few threads for many downloads, or for many files to be hashed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
# hashing runs outside of Python's lock, so a few threads use a few cores; each holds one buffer
HASHING = min(4, os.cpu_count() or 1)


def in_threads(act: Callable[[T], R], items: Iterable[T], threads: int = HASHING) -> list[R]:
    """Act on every item in a few threads; an exception stops what has not started yet.

    Of several the one of the earliest item is raised.
    """
    # the threads share one iterator over a list, of which the interpreter gives each item once: an object and a lock
    # for each of many small files would cost more than to hash them
    left = enumerate(list(items))
    done: dict[int, R] = {}
    failed: dict[int, BaseException] = {}

    def work() -> None:
        for number, item in left:
            try:
                done[number] = act(item)
            except BaseException as error:
                failed[number] = error
                deque(left, maxlen=0)

    with ThreadPoolExecutor(threads) as pool:
        try:
            wait([pool.submit(work) for _ in range(threads)])
        finally:
            # an interruption of the caller stops them as well
            deque(left, maxlen=0)
    if failed:
        raise failed[min(failed)]
    return [done[number] for number in range(len(done))]
