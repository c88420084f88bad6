"""Health: which failing checks close a node, and how the states of checks are damped. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from common.checks import Check, CheckState

GRAVITY = (CheckState.OK, CheckState.UNKNOWN, CheckState.WARN, CheckState.FAIL)
"""The states of a check by how much they matter."""
CLOSING = (
    *("disk", "fabric.link", "gpu.count", "gpu.ecc", "gpu.fabric", "gpu.nvlink", "gpu.present", "gpu.temperature"),
    *("gpu.xid", "memory"),
)
"""Failing checks with which a node takes nothing new, unless the site says otherwise. A dead container engine and a
wrong clock do so by themselves, and a missing storage keeps away what mounts it."""
RENEW = (
    "run `penstock site deploy`, which renews it; on the reservoir node `journalctl -u penstock-renewal` says why"
    " its timer has not"
)
"""What to do about a certificate of the site that ends soon."""
MISSING = "it was there, and is not found any more"

Key = TypeVar("Key", bound=Hashable)


def gravity(state: CheckState) -> int:
    """Return how much a state matters, from 0."""
    return GRAVITY.index(state)


def graded(value: float, warn: float, fail: float) -> CheckState:
    """Return the state of a value by the bounds above which it warns and fails."""
    if value > fail:
        return CheckState.FAIL
    return CheckState.WARN if value > warn else CheckState.OK


@dataclass(frozen=True)
class Damping:
    """So many looks in a row make a state worse or better; one that changed `flaps` times within `window_s` has to be
    well for as long before it counts as better.
    """

    worse: int = 2
    better: int = 3
    flaps: int = 4
    window_s: float = 600


class Damped:
    """One check, as its looks found it one after the other, and as it counts; moments are seconds that never step."""

    def __init__(self, damping: Damping, counts: Check | None = None) -> None:
        """Begin with how it counts, where that is known."""
        self.counts = counts
        self._damping = damping
        self._looks: deque[Check] = deque(maxlen=max(damping.worse, damping.better))
        self._changes: deque[float] = deque(maxlen=damping.flaps)
        self._is_better = False
        self._steady_since = 0.0
        self._missing_since = 0.0
        self._missed = 0

    def see(self, found: Check, moment: float) -> Check:
        """Take what a look found; returns the check as it counts. The first look counts at once."""
        self._missed = 0
        return self._see(found, moment)

    def miss(self, moment: float) -> bool:
        """Take that a look did not find it any more; returns whether that has held for long enough to forget it."""
        if not self._missed:
            self._missing_since = moment
        self._missed += 1
        if self.counts:
            self._see(unknown(self.counts, MISSING), moment)
        return self._missed >= self._damping.better and moment - self._missing_since >= self._damping.window_s

    def _see(self, found: Check, moment: float) -> Check:
        if self.counts is None:
            self._looks.append(found)
            self.counts, self._steady_since = found, moment
        elif found.state is CheckState.UNKNOWN and gravity(self.counts.state) > gravity(CheckState.UNKNOWN):
            # a look that found nothing is no sign that it is better, and does not end a row of those that are
            self.counts = replace(self.counts, evidence=found.evidence)
        else:
            self._looks.append(found)
            self._note_steadiness(found, self.counts, moment)
            self._count(found, self.counts, moment)
        return self.counts

    def _count(self, found: Check, before: Check, moment: float) -> None:
        """Let a look count that found the same, or the last ones together where all of them found it worse or better:
        the mildest of those that are worse, the worst of those that are better.
        """
        if found.state is before.state:
            self.counts = found
        elif changed := self._worse(before) or self._better(before):
            self._changes.append(moment)
            self.counts, self._is_better, self._steady_since = changed, False, moment

    def _worse(self, before: Check) -> Check | None:
        looks = list(reversed(self._looks))
        # looks that found nothing between those that did are no sign that it is well
        known = [each for each in looks if each.state is not CheckState.UNKNOWN]
        for last in (known[: self._damping.worse], looks[: self._damping.worse]):
            mildest = min(last, key=lambda each: gravity(each.state), default=before)
            if len(last) == self._damping.worse and gravity(mildest.state) > gravity(before.state):
                return mildest
        return None

    def _better(self, before: Check) -> Check | None:
        last = list(reversed(self._looks))[: self._damping.better]
        worst = max(last, key=lambda each: gravity(each.state))
        holds = len(last) == self._damping.better and not self._flaps
        return worst if holds and gravity(worst.state) < gravity(before.state) else None

    def _note_steadiness(self, found: Check, before: Check, moment: float) -> None:
        """Note since when looks agree whether it is better; after a whole window of that it flaps no more."""
        is_better = gravity(found.state) < gravity(before.state)
        if is_better is not self._is_better:
            self._is_better, self._steady_since = is_better, moment
        if moment - self._steady_since >= self._damping.window_s:
            self._changes.clear()

    @property
    def _flaps(self) -> bool:
        changes = self._changes
        return len(changes) == changes.maxlen and changes[-1] - changes[0] < self._damping.window_s


class DampedChecks(Generic[Key]):
    """The checks of one who looks by their keys, each damped; what a look finds no more is unknown, then forgotten."""

    def __init__(self, damping: Damping, counts: Mapping[Key, Check] | None = None) -> None:
        """Begin with how checks count, where that is known."""
        self._damping = damping
        self._known = {key: Damped(damping, check) for key, check in (counts or {}).items()}

    def see(self, found: Mapping[Key, Check], moment: float) -> None:
        """Take all that was found at a moment."""
        self._known = {key: known for key, known in self._known.items() if key in found or not known.miss(moment)}
        for key, check in found.items():
            self._known.setdefault(key, Damped(self._damping)).see(check, moment)

    def forget(self, key: Key) -> None:
        """Forget a check at once, if it is known."""
        self._known.pop(key, None)

    @property
    def counts(self) -> dict[Key, Check]:
        """The checks as they count."""
        return {key: known.counts for key, known in self._known.items() if known.counts}


def unknown(check: Check, reason: str) -> Check:
    """Return a check that could not be looked at."""
    return replace(check, state=CheckState.UNKNOWN, evidence=reason, hint="", repair="", since="")
