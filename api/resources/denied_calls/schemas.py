"""Bodies of answers about denied calls."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from api.resources.schemas import View


class DeniedCallView(View):
    """A system call that a sandbox denied `count` times, from `first_at` to `last_at`, to processes of one name.

    `rank` is the container, `pid` the last process as the container numbers them, `effect` the error that the call
    ended with, or `killed`. What came from too many processes or calls is put together under `*`.
    """

    rank: int
    call: str
    process: str
    pid: int
    effect: str
    first_at: datetime
    last_at: datetime
    count: int


class DeniedCallsView(View):
    """What the sandbox of a session denied: `denied` calls in all, and the newest series that are still kept."""

    session_id: UUID
    sandbox: str
    denied: int
    series: list[DeniedCallView]
