"""Rates of what accounts ask for: each change is a line of the audit log that is kept, and each dry run takes time.

All that an hour or a minute allows may come at once; what is used up comes back evenly. Keys and logins of an account
count apart: whoever has come to a key cannot keep its owner, who signs in to revoke it, from doing so.
"""

from __future__ import annotations

from math import ceil
from uuid import UUID

from api.clock import Clock
from common.errors import ThrottledError

HOUR_S = 3600.0
MINUTE_S = 60.0
DRY_RUNS_A_MINUTE = 60
"""Whoever fills in a form asks twice a second at most, and not for long."""


class _Rate:
    """What each account has used up of `most` in so many seconds, in the memory of this process."""

    def __init__(self, most: int, within_s: float, clock: Clock, *, reason: str, hint: str) -> None:
        """Begin with nothing used up; who asks for one too many is told the reason, how long to wait, and the hint."""
        self._most = most
        self._within_s = within_s
        self._clock = clock
        self._reason, self._hint = reason, hint
        self._whole_at: dict[tuple[UUID, bool], float] = {}

    def take(self, account: UUID, *, signed_in: bool) -> None:
        """Count one more of an account, by a login or else by a key; raises ThrottledError for one too many."""
        at, who = self._clock.monotonic(), (account, signed_in)
        whole_at = max(self._whole_at.get(who, at), at) + self._within_s / self._most
        if (wait_s := whole_at - at - self._within_s) > 0:
            error = ThrottledError(self._reason, hint=f"wait {ceil(wait_s)} s{self._hint}")
            error.retry_after_s = ceil(wait_s)
            raise error
        self._whole_at[who] = whole_at


class ChangeRate(_Rate):
    """How many changes an account may make in an hour."""

    def __init__(self, per_hour: int, clock: Clock) -> None:
        """Begin with nothing used up."""
        super().__init__(
            per_hour,
            HOUR_S,
            clock,
            reason=f"this account has made the {per_hour} changes that it may make in an hour",
            hint="; `control_api.changes_per_hour` in the site file is how many it may make",
        )


class DryRunRate(_Rate):
    """How many dry runs an account may ask for in a minute."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        """Begin with nothing used up."""
        reason = f"this account has asked for the {per_minute} dry runs that it may have in a minute"
        super().__init__(per_minute, MINUTE_S, clock, reason=reason, hint="")
