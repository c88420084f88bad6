"""Turns: for whom victims are looked for in a decision, where that would take too long for all who wait."""

from __future__ import annotations

from collections.abc import Collection

from api.scheduler.snapshot import Workload

STEPS = 16_000
"""So many steps are taken for those who come first in the order, and half as many for those left out before. The search
that is under way then is finished."""


class Turns:
    """Who has a turn: whoever comes first in the order, and in each decision some who were left out before.

    So nobody is left out for ever; who comes while a round goes on may be overtaken by those of the round. Steps are
    counted, and no time: the same snapshot gives the same decision.
    """

    def __init__(self, left_out: Collection[str]) -> None:
        """Begin; these were left out by the decision before."""
        self._before = frozenset(left_out)
        self._spent = {False: 0, True: 0}
        self._is_late, self._has_turn = False, ""
        self._noted: dict[str, None] = {}

    def may_search(self, workload: Workload) -> bool:
        """Return whether the workload has a turn, which is then its own until another one asks; else it is left out."""
        if workload.id == self._has_turn:
            return True
        is_late = self._spent[False] >= STEPS
        if is_late and (workload.id not in self._before or 2 * self._spent[True] >= STEPS):
            self._noted[workload.id] = None
            return False
        self._is_late, self._has_turn = is_late, workload.id
        return True

    def is_left_out(self, workload: Workload) -> bool:
        """Return whether it had none when it asked."""
        return workload.id in self._noted

    def keep(self, workload: Workload) -> None:
        """Let one that was left out before, and had no turn for another reason, be left out still."""
        if workload.id in self._before:
            self._noted[workload.id] = None

    def spend(self, steps: int) -> None:
        """Note steps of a search for who has the turn."""
        self._spent[self._is_late] += steps

    @property
    def left_out(self) -> tuple[str, ...]:
        """Who goes before others next time: those of the round under way, or else those of the next one."""
        rest = tuple(id_ for id_ in self._noted if id_ in self._before)
        return rest or tuple(self._noted)
