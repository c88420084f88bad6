"""Timetables of GPUs: windows in a period that repeats. Pure; all times are ns of one monotonic clock.

Periods begin at the multiples of their length, so that everybody who knows the clock and the length agrees on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from common.gpu.kinds import Compute
from common.gpu.units import MILLI

WIDER = 2
"""So many times as long as its share is the window of a sharer that rests: of what stands upon others half is had."""
GRACE_NS = 3_000_000_000
"""How long a plan that gives windows away goes on where nobody renews it; then all have the window of their share."""
PLANS_PER_PERIOD = 4
"""So often it is asked who wants to launch, so that a window comes back within a period and a quarter."""
LEAD = 10
"""A plan is written at least so many parts of a period before it is valid: all must have it by then."""


@dataclass(frozen=True)
class Window:
    """When a sharer may launch: from `from_ns` on, in each period that begins at `epoch_ns` or a multiple of
    `period_ns` later, for `length_ns` after its first `offset_ns`.
    """

    from_ns: int = 0
    epoch_ns: int = 0
    period_ns: int = 0
    offset_ns: int = 0
    length_ns: int = 0


@dataclass(frozen=True)
class Sharer:
    """A container on a GPU that it shares, with `milli` of its time; `active` where it has something to launch."""

    container: str
    milli: int
    active: bool = True


def is_active(wanted_ns: int, now_ns: int, period_ns: int) -> bool:
    """Return whether a sharer has something to launch, by when it last launched or waited to; 0: never."""
    # the time between two looks, which are not made on the dot
    return bool(wanted_ns) and (now_ns - wanted_ns) * PLANS_PER_PERIOD < period_ns * 6 // 5


def boundary(now_ns: int, period_ns: int, lead_ns: int) -> int:
    """Return when the next period begins that is at least `lead_ns` away: a plan must be known before it is valid."""
    return -(-(now_ns + lead_ns) // period_ns) * period_ns


def plan(sharers: Iterable[Sharer], mode: Compute, period_ns: int, from_ns: int) -> dict[str, Window]:
    """Return the window of each sharer of one GPU, by container.

    Strict: each gets its part of the period, and what nobody was given stays idle. Fair: the period is divided among
    those that are active, in the ratio of their shares; where nobody is, among all. The windows of the others, which
    use them seldom, stand upon those: nothing moves for them, and nothing is kept for them. No others overlap.
    """
    everyone = sorted(sharers, key=lambda sharer: sharer.container)
    total = sum(sharer.milli for sharer in everyone)
    if mode is Compute.STRICT:
        # more than a whole GPU is never given; should it be, nobody's window may overlap
        return _lay(everyone, max(MILLI, total), period_ns, from_ns)
    windows = _lay(everyone, total, period_ns, from_ns)
    working = [sharer for sharer in everyone if sharer.active]
    if not working:
        return windows
    # in the place that is theirs where all are active
    above = {name: _widened(window) for name, window in windows.items()}
    return above | _lay(working, sum(sharer.milli for sharer in working), period_ns, from_ns)


def plan_for_all(sharers: Iterable[Sharer], mode: Compute, period_ns: int, from_ns: int) -> dict[str, Window]:
    """Return the window that each sharer of one GPU has where nobody knows who is active."""
    everyone = [Sharer(sharer.container, sharer.milli) for sharer in sharers]
    return plan(everyone, mode, period_ns, from_ns)


def current(windows: Sequence[Window], now_ns: int) -> Window:
    """Return the window that is valid now: that of the latest plan whose time has come; an empty one before all."""
    return max(
        (window for window in windows if window.from_ns <= now_ns), key=lambda one: one.from_ns, default=Window()
    )


def _widened(window: Window) -> Window:
    """Return a window that is longer and ends within the period."""
    length_ns = min(WIDER * window.length_ns, window.period_ns)
    return replace(window, offset_ns=min(window.offset_ns, window.period_ns - length_ns), length_ns=length_ns)


def _lay(sharers: Sequence[Sharer], total: int, period_ns: int, from_ns: int) -> dict[str, Window]:
    windows, before = {}, 0
    for sharer in sharers:
        # both ends are rounded alike, so neighbours meet and nothing is lost
        start, end = period_ns * before // total, period_ns * (before + sharer.milli) // total
        windows[sharer.container] = Window(from_ns, 0, period_ns, start, end - start)
        before += sharer.milli
    return windows
