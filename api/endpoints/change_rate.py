"""Rate of changes: each is a line of the audit log that is kept, so no account makes them without end.

All that an hour allows may come at once; what is used up comes back evenly. Keys and logins of an account count apart:
whoever has come to a key cannot keep its owner, who signs in to revoke it, from doing so.
"""

from __future__ import annotations

from math import ceil
from uuid import UUID

from api.clock import Clock
from common.errors import ThrottledError

HOUR_S = 3600.0


class ChangeRate:
    """What each account has used up, in the memory of this process."""

    def __init__(self, per_hour: int, clock: Clock) -> None:
        """Begin with nothing used up."""
        self._per_hour = per_hour
        self._clock = clock
        self._whole_at: dict[tuple[UUID, bool], float] = {}

    def take(self, account: UUID, *, signed_in: bool) -> None:
        """Count one more change of an account, by a login or else by a key; raises ThrottledError for one too many."""
        at, who = self._clock.monotonic(), (account, signed_in)
        whole_at = max(self._whole_at.get(who, at), at) + HOUR_S / self._per_hour
        if (wait_s := whole_at - at - HOUR_S) > 0:
            error = ThrottledError(
                f"this account has made the {self._per_hour} changes that it may make in an hour",
                hint=f"wait {ceil(wait_s)} s; `control_api.changes_per_hour` in the site file is how many it may make",
            )
            error.retry_after_s = ceil(wait_s)
            raise error
        self._whole_at[who] = whole_at
