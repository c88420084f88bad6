"""Residents as the loop keeps them between cycles: the sessions that hold places, of which only changes are read."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.sessions import scheduling
from api.scheduler.snapshot import Running

READ_ANYWAY_S = 600
"""All revisions are read again after so long, whatever was told of changes."""


class Residents:
    """Sessions that hold places, by id; `look` finds what has changed, and `read` takes over what was read of it."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self._kept: dict[UUID, tuple[int, Running]] = {}
        self._rules: object = None
        self._horizon = 0
        self._all_read_at = float("-inf")
        self._seen: Mapping[UUID, tuple[int, bool]] = {}
        self._unread: dict[UUID, int] = {}
        self._changes: dict[str, Running | None] = {}

    def __getitem__(self, id_: UUID) -> tuple[int, Running]:
        """Return a resident with its revision."""
        return self._kept[id_]

    @property
    def running(self) -> tuple[Running, ...]:
        """All of them."""
        return tuple(running for _, running in self._kept.values())

    @property
    def ids(self) -> Collection[UUID]:
        """The ids of all of them."""
        return self._kept.keys()

    @property
    def unread(self) -> set[UUID]:
        """Those that have come or changed, and were not read since."""
        return set(self._unread)

    async def look(self, db: AsyncSession, horizon: int, rules: object) -> bool:
        """Look which sessions have changed; returns whether any has, those that wait too.

        `horizon` was read before: what it does not know yet is found by the next look. Of others than the sessions
        themselves, what is kept of these depends on the `rules`: all are read again where these are others.
        """
        if rules != self._rules or self._all_read_at + READ_ANYWAY_S <= time.monotonic():
            await self._look_at_all(db, horizon, rules)
            return True
        seen = await scheduling.changed(db, self._horizon)
        news = {id_: each for id_, each in seen.items() if self._seen.get(id_) != each}
        self._horizon, self._seen = horizon, seen
        for id_, (revision, holds) in news.items():
            if holds and self._kept.get(id_, (-1,))[0] != revision:
                self._unread[id_] = revision
            elif not holds:
                self._forget(id_)
        return bool(news)

    async def _look_at_all(self, db: AsyncSession, horizon: int, rules: object) -> None:
        # Read before who holds: a change in between is noticed by the next look.
        seen = await scheduling.changed(db, horizon)
        holding = await scheduling.holding(db)
        of_before = {} if rules != self._rules else self._kept
        for id_ in self._kept.keys() - holding.keys():
            self._forget(id_)
        self._unread = {id_: each for id_, each in holding.items() if of_before.get(id_, (-1,))[0] != each}
        self._horizon, self._seen, self._rules = horizon, seen, rules
        self._all_read_at = time.monotonic()

    def read(self, found: Mapping[UUID, tuple[int, Running]]) -> None:
        """Take over what was read of those that were not; what was not found is gone."""
        for id_ in tuple(self._unread):
            if id_ in found:
                self._kept[id_] = found[id_]
                self._changes[str(id_)] = found[id_][1]
            else:
                self._forget(id_)
        self._unread = {}

    def let_be(self, id_: UUID) -> None:
        """Let an elastic one have no further containers, until it changes."""
        if kept := self._kept.get(id_):
            self._kept[id_] = kept[0], replace(kept[1], grows_at=0)
            self._changes[str(id_)] = self._kept[id_][1]

    def take_changes(self) -> Mapping[str, Running | None]:
        """Return what has changed since the last call, by workload; None is one that is gone."""
        changes, self._changes = self._changes, {}
        return changes

    def _forget(self, id_: UUID) -> None:
        self._unread.pop(id_, None)
        if self._kept.pop(id_, None):
            self._changes[str(id_)] = None
