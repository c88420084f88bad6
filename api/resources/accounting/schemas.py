"""Bodies of the accounting endpoint."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
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
    For `covered_gpu_seconds` of these it is known how busy the GPUs were, which comes to `busy_gpu_seconds`.
    `cost` has two digits behind the point, rounded from an exact sum; the total is rounded by itself, and may be other
    than the sum of the rows by half a hundredth for each. It is None where the site has no prices.
    """

    id: UUID | None = None
    name: str
    deleted: bool = False
    sessions: int
    session_seconds: float
    gpu_seconds: float
    covered_gpu_seconds: float = 0
    busy_gpu_seconds: float = 0
    cost: Decimal | None = None


class AccountingView(View):
    """Accounting of a period: what ran before and after it does not count, what still runs counts up to now.

    Of what is older than its details are kept, the days count that begin in the period (UTC). Costs are in `currency`
    (ISO 4217), by the prices of now for the whole period; None where the site has no prices.
    """

    starts_at: datetime
    ends_at: datetime
    by: By
    currency: str | None
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


class UtilizationStep(View):
    """What the site's GPUs did in so many seconds, on average, in milli-GPU.

    `gpu_milli` there were, None where nobody knows; `held_milli` were held by sessions. For `covered_milli` of these it
    is known how busy they were, and `busy_milli` were.
    """

    seconds: float
    gpu_milli: int | None = None
    held_milli: int = 0
    covered_milli: int = 0
    busy_milli: int = 0


class UtilizationView(View):
    """What the site's GPUs did over time; the steps are of `step_s` seconds each, and the last ends now.

    A period begins with an hour. Of what is older than its details are kept, nothing is told.
    """

    starts_at: datetime
    ends_at: datetime
    step_s: int
    steps: list[UtilizationStep]


class WaitFigures(View):
    """How long was waited for what began: of so many, the median, the 95th percentile and the longest, in seconds.

    The percentiles are waits that there were, at most 5 % and 50 ms above what all waits in order would give; of none
    there are none.
    """

    count: int = 0
    median_s: float | None = None
    p95_s: float | None = None
    longest_s: float | None = None


class WaitRow(WaitFigures):
    """The waits of one user, project or domain, and apart from these how many sessions wait now, how long at most."""

    id: UUID | None = None
    name: str
    deleted: bool = False
    waiting: int = 0
    oldest_s: float | None = None


class WaitsView(View):
    """How long sessions waited before they ran, by when they began to; `steps` are of `step_s` seconds each.

    A wait begins when a session is submitted or goes back to the queue, or when it may start at the earliest.
    Of what is older than its details are kept, nothing is told.
    """

    starts_at: datetime
    ends_at: datetime
    by: By
    step_s: int
    rows: list[WaitRow]
    total: WaitRow
    steps: list[WaitFigures]
