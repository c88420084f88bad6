"""GPU shares as a slider offers them: the site's steps up to one GPU, then whole GPUs."""

from __future__ import annotations

from api.settings import Settings
from common.gpu.share import MAX_GPUS, MILLI

__all__ = ["MILLI", "steps"]


def steps(settings: Settings, most: int = MAX_GPUS) -> list[int]:
    """Return the shares that a container may have of up to `most` GPUs, in milli-GPU, without none at all."""
    step = settings.granularity.step_milli
    return [*range(step, MILLI, step), *range(MILLI, most * MILLI + 1, MILLI)]
