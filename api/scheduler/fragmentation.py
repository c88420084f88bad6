"""Which of the places that fit leaves the most for others: the lower the rank, the better."""

from __future__ import annotations

import numpy as np

from api.scheduler.capacity import Free, Ints, Layout
from api.scheduler.snapshot import Workload
from appliance.gpu.share import MILLI


def rank(layout: Layout, free: Free, workload: Workload, rows: Ints) -> Ints:
    """Return the rank of each of the rows, on all of which one container of the workload fits."""
    whole, fraction = divmod(workload.gpu_milli, MILLI)
    milli = free.milli[rows]
    usable = layout.usable(workload.models)[rows]
    free_gpus: Ints = ((milli == MILLI) & usable).sum(axis=1)
    if not workload.gpu_milli:
        return free.cpu[rows]
    if not fraction:
        return free_gpus
    fitting = np.where(usable & (milli >= fraction), milli, MILLI + 1).min(axis=1)
    opened = np.asarray(fitting == MILLI, dtype=np.int64)
    beside = fitting - fraction
    return np.asarray((opened * 1000 + beside) * 100 + free_gpus - whole - opened)
