"""Bodies of answers about metrics."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from api.resources.schemas import View


class MetricsPoint(View):
    """What a container used of a GPU in the time that begins `at`: the most memory and processes, the mean of the rest.

    `busy_permille` is the part of the GPU's time in which it worked for the container, null where nobody can tell.
    """

    at: datetime
    memory_mib: int
    busy_permille: int | None
    processes: int


class MetricsSeries(View):
    """What the container `rank` of a session used of one GPU; times without a point had no sample."""

    rank: int
    uuid: str
    points: list[MetricsPoint]


class MetricsView(View):
    """What a session used of its GPUs; each point stands for `step_s` seconds."""

    session_id: UUID
    since: datetime
    until: datetime
    step_s: int
    series: list[MetricsSeries]
