"""Bodies of the accounting endpoint."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from api.resources.schemas import View


class By(StrEnum):
    """What a report adds up by."""

    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"


class AccountingRow(View):
    """What ran for one user, project or domain ("" for the site itself); `sessions` counts each session once.

    One that is `deleted` may have the name of another that is there. `id` tells them apart; the total has none.

    `session_seconds` is how long they ran, `gpu_seconds` that time multiplied by the GPUs that they held.
    """

    id: UUID | None = None
    name: str
    deleted: bool = False
    sessions: int
    session_seconds: float
    gpu_seconds: float


class AccountingView(View):
    """Accounting of a period: what ran before and after it does not count, what still runs counts up to now.

    Of what is older than its details are kept, the days count that begin in the period (UTC).
    """

    starts_at: datetime
    ends_at: datetime
    by: By
    rows: list[AccountingRow]
    total: AccountingRow


class TimelineSeries(View):
    """What one user, project or domain held of GPUs in each step of a period, on average, in milli-GPU."""

    id: UUID | None
    name: str
    deleted: bool
    gpu_milli: list[int]


class TimelineView(View):
    """What was held over time; each number stands for `step_s` seconds from `starts_at` on.

    Of what is older than its details are kept, nothing is told.
    """

    starts_at: datetime
    ends_at: datetime
    by: By
    step_s: int
    series: list[TimelineSeries]
