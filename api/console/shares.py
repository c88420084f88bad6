"""GPU shares as a slider offers them: the site's steps up to one GPU, then whole GPUs."""

from __future__ import annotations

from api.settings import Settings
from common.gpu.share import MAX_GPUS, MILLI


def steps(settings: Settings) -> list[int]:
    """Return the shares that a container may have, in milli-GPU, without none at all."""
    step = settings.granularity.step_milli
    return [*range(step, MILLI, step), *range(MILLI, MAX_GPUS * MILLI + 1, MILLI)]
