"""Limits of a pool on the candidates that a search has not decided on, kept up to date step by step.

A search takes and spares candidates thousands of times. Each step changes one project, so only what that changes is
counted again; `VictimPool` says what the limits are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from api.scheduler.snapshot import Running
from api.scheduler.victims import VictimPool

NO_LIMIT = 1 << 62


@dataclass(slots=True)
class _Project:
    """The candidates of one project, the smallest first: which are open, and how many the limit lets through."""

    milli: list[int]
    places: list[int]
    open: list[bool]
    own: bool
    surplus: int
    taken: int = 0
    largest: list[int] = field(default_factory=lambda: [0])
    through: int = 0
    wanted: int = 0
    most: int = 0


class Limits:
    """Candidates by their places in a list: those taken, those still open, and which of these may be taken next."""

    def __init__(self, pool: VictimPool, candidates: Iterable[Running]) -> None:
        self.taken = 0
        """The milli-GPU of those taken."""
        self.most = 0
        """No more milli-GPU than that can still be taken."""
        self.allowed: list[bool] = []
        """By place: whether it is open and may be taken beside those that are."""
        self._pool = pool
        members: dict[str, list[tuple[int, int]]] = {}
        for place, running in enumerate(candidates):
            name = "" if pool.everyone else running.workload.project
            members.setdefault(name, []).append((running.workload.total_milli, place))
            self.allowed.append(False)
        self._of: list[tuple[_Project, int]] = [(_NOBODY, 0)] * len(self.allowed)
        self._own: _Project = _NOBODY
        for name, found in members.items():
            found.sort()
            own = not pool.everyone and name == pool.own
            project = _Project(
                [milli for milli, _ in found],
                [place for _, place in found],
                [True] * len(found),
                own or pool.everyone,
                pool.surplus.get(name, 0),
            )
            for at, (_, place) in enumerate(found):
                self._of[place] = project, at
            if own:
                self._own = project
            self._update(project)

    def close(self, place: int) -> None:
        """Count an open candidate as decided on."""
        project, at = self._of[place]
        project.open[at] = False
        if self.allowed[place]:
            self.allowed[place] = False
            project.wanted -= project.milli[at]
            self._bound(project)

    def reopen(self, place: int) -> None:
        """Undo `close`, once what was taken since is given back."""
        project, at = self._of[place]
        project.open[at] = True
        if at < project.through:
            self.allowed[place] = True
            project.wanted += project.milli[at]
            self._bound(project)

    def take(self, place: int) -> Sequence[int]:
        """Take a candidate that is closed; returns those that are not allowed beside it."""
        project, at = self._of[place]
        project.taken += project.milli[at]
        project.largest.append(max(project.largest[-1], project.milli[at]))
        self.taken += project.milli[at]
        return self._update(project)

    def give_back(self, place: int) -> Sequence[int]:
        """Give back the one taken last; returns those that are allowed again."""
        project, at = self._of[place]
        project.taken -= project.milli[at]
        project.largest.pop()
        self.taken -= project.milli[at]
        return self._update(project)

    def owed(self) -> int:
        """Return how much of its own the project still has to give up beside those taken."""
        return max(0, self._pool.due - self._own.taken) if self._pool.due > 0 else 0

    def would_be_owed(self) -> int:
        """Return the same if all were taken that are allowed."""
        return max(0, self._pool.due - self._own.taken - self._own.wanted) if self._pool.due > 0 else 0

    def _update(self, project: _Project) -> Sequence[int]:
        """Count anew who is let through; returns those whose turn it is to be allowed, or not to be."""
        before, after = project.through, bisect_right(project.milli, self._limit(project))
        changed: list[int] = []
        for at in range(min(before, after), max(before, after)):
            if project.open[at]:
                place = project.places[at]
                self.allowed[place] = after > before
                project.wanted += project.milli[at] if after > before else -project.milli[at]
                changed.append(place)
        project.through = after
        self._bound(project)
        return changed

    def _limit(self, project: _Project) -> int:
        """Return the largest that may be taken next; the last one may pass the line where the pool says so."""
        left = project.surplus - project.taken
        if project.own:
            return NO_LIMIT
        if not self._pool.last_may_pass:
            return left
        return NO_LIMIT if left > 0 else project.largest[-1] + left - 1

    def _bound(self, project: _Project) -> None:
        """Count anew how much of a project can still be taken."""
        self.most -= project.most
        project.most = project.wanted
        if not project.own and project.wanted:
            left = project.surplus - project.taken
            if self._pool.last_may_pass:
                # who passes the line may be taken already
                next_largest = next(project.milli[at] for at in reversed(range(project.through)) if project.open[at])
                left += max(project.largest[-1], next_largest)
            project.most = max(0, min(project.wanted, left))
        self.most += project.most


_NOBODY = _Project([], [], [], own=True, surplus=0)
