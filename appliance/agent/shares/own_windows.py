"""The window of its own share for every container: systemd asks for it after the agent has ended, however it did.

One that was killed may leave a plan without windows for those that were idle then, and nobody who would change it. All
that is needed stands in the files of the containers.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from appliance.gpu import timetable
from appliance.gpu.layout import Limit
from appliance.gpu.share_files import LimitsFile
from appliance.gpu.timetable import LEAD, Sharer, current
from common.errors import PenstockError
from common.gpu.kinds import Compute

log = structlog.get_logger()


def give_own_windows(folder: Path, now_ns: int) -> None:
    """Plan for all GPUs that containers below a folder share; `now_ns` is CLOCK_MONOTONIC.

    A file that cannot be used is named in the log, and a GPU that has no plan gets none.
    """
    sharers: dict[str, dict[str, tuple[LimitsFile, Limit]]] = {}
    for path in sorted(folder.glob("*/limits/limits")):
        try:
            file = LimitsFile(path)
        except PenstockError as error:
            log.warning("a container keeps its windows", reason=str(error))
            continue
        for limit in file.limits():
            if limit.compute is not Compute.OFF:
                sharers.setdefault(limit.uuid, {})[path.parts[-3]] = file, limit
    for uuid, known in sharers.items():
        period_ns = max(current(file.windows(uuid), now_ns).period_ns for file, _ in known.values())
        if not period_ns:
            continue
        everyone = [Sharer(container, limit.milli) for container, (_, limit) in known.items()]
        mode = next(limit.compute for _, limit in known.values())
        from_ns = timetable.boundary(now_ns, period_ns, period_ns // LEAD)
        for container, window in timetable.plan_for_all(everyone, mode, period_ns, from_ns).items():
            known[container][0].schedule({uuid: window}, now_ns)
