"""Rights: by what a workload that waits may have others stopped, in one order, the strongest first.

Nobody is stopped for a right that comes later than its own, and so no two, nor more of them, stop each other in turn:

1. GPUS: the quota of GPUs of its project has room for it, or has once those of its project that it may stop are gone.
2. CPU_AND_MEMORY: the same of the quotas of CPU and memory, for work without GPUs.
3. FAIR_SHARE: the fair share of its project has room for it.

PRIORITY is beside these: it stops none but lower ones of its own project, and for work without GPUs that was stopped
itself none with GPUs a second time. What a project has beyond a quota are those of the lowest priority, of equal ones
the youngest: for who is within it once lower ones are gone, all that a project has is so, whichever of its sessions
hold it. Stopped for who needs that, or for a right that comes later, are therefore only these. Who has room in its
quota already may also stop another one of a project beyond its own.
"""

from __future__ import annotations

from enum import Enum, auto


class Right(Enum):
    """Why others may be stopped for a workload."""

    GPUS = auto()
    CPU_AND_MEMORY = auto()
    FAIR_SHARE = auto()
    PRIORITY = auto()
