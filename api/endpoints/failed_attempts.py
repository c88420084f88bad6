"""Failed attempts, counted by user or address and action: who floods the audit log fills no disk."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MINUTE_S = 60.0
OBJECTS = 20
"""So many of the objects of the others are named, the first ones: who floods the log hides nothing behind it."""
KNOWN = 4096
"""Of so many users, addresses and actions at a time."""


@dataclass
class _Minute:
    """Attempts of one kind that failed since `began`, of which `most` are told by themselves; `last` is the last of the
    others, and `objects` are what these were about.
    """

    began: float
    most: int
    count: int = 0
    last: dict[str, Any] | None = None
    objects: dict[str, None] = field(default_factory=dict)


@dataclass
class FailedAttempts:
    """Those of the minutes that are not over, and of those that are, as far as nobody was told of them."""

    _minutes: OrderedDict[tuple[str, str], _Minute] = field(default_factory=OrderedDict)
    _over: deque[_Minute] = field(default_factory=lambda: deque(maxlen=KNOWN))

    def is_told(self, entry: dict[str, Any], most: int) -> bool:
        """Take note of one more; return whether it is told by itself, as `most` of a minute are."""
        # the name in an attempt to sign in is whatever its sender likes
        who = str(entry["user"] if entry["role"] else entry["address"]), str(entry["action"])
        minute = self._minutes.setdefault(who, _Minute(time.monotonic(), most))
        if len(self._minutes) > KNOWN:
            self._end_first()
        minute.count += 1
        if minute.count <= minute.most:
            return True
        minute.last = entry
        if len(minute.objects) < OBJECTS:
            minute.objects[_wanted_by(entry)] = None
        return False

    def left_out(self, *, all_: bool = False) -> Iterator[dict[str, Any]]:
        """Yield a line for each minute that is over, or for all: the last attempt, and how many more there were.

        One counts as told when the next one is asked for: until then it is there for who asks anew.
        """
        due = time.monotonic() - MINUTE_S
        while self._minutes and (all_ or next(iter(self._minutes.values())).began <= due):
            self._end_first()
        while self._over:
            one = self._over[0]
            yield {**(one.last or {}), "left_out": one.count - one.most - 1, "objects": [*one.objects]}
            if self._over and self._over[0] is one:
                self._over.popleft()

    def _end_first(self) -> None:
        _, minute = self._minutes.popitem(last=False)
        if minute.last:
            self._over.append(minute)


def _wanted_by(entry: Mapping[str, Any]) -> str:
    """Return what a failed attempt was about: of one to sign in, the name by which."""
    return f"users/{entry['user']}" if entry["user"] and not entry["role"] else str(entry["object"])
