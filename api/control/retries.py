"""Retries of what the leader does to sessions: when each is due, and after how many tries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from api.clock import Clock
from api.control.reconcilers.failures import wait_s
from api.tables.sessions import State

NEVER = float("inf")


@dataclass
class _Retry:
    """When an operation is tried again; a session that has come to another state since then is not made to wait."""

    state: State
    due: float
    tries: int


class Retries:
    """Operations that are to be tried again, by session."""

    def __init__(self, clock: Clock) -> None:
        """Start with none."""
        self._clock = clock
        self._kept: dict[UUID, _Retry] = {}

    def is_due(self, id_: UUID, state: State) -> bool:
        """Return whether a session in this state may be operated on now."""
        retry = self._kept.get(id_)
        if retry is None or (retry.state is not state and retry.due < NEVER):
            return True
        return retry.due <= self._clock.monotonic()

    def tries(self, id_: UUID) -> int:
        """Return how often a session was put off."""
        retry = self._kept.get(id_)
        return retry.tries if retry else 0

    def put_off(self, id_: UUID, state: State) -> None:
        """Let a session wait, the longer the more often it did in this state."""
        known = self._kept.get(id_)
        tries = known.tries if known and known.state is state else 0
        self._kept[id_] = _Retry(state, self._clock.monotonic() + wait_s(tries), tries + 1)

    def leave_alone(self, id_: UUID) -> None:
        """Let nothing more be tried of a session that was put off."""
        self._kept[id_].due = NEVER

    def forget(self, id_: UUID) -> None:
        """Let a session wait no more."""
        self._kept.pop(id_, None)

    def keep(self, ids: Collection[UUID]) -> None:
        """Forget all sessions but these."""
        for gone in self._kept.keys() - set(ids):
            del self._kept[gone]
