"""GPU shares as integers: 1,000 milli-GPU are one GPU, and the site's granularity says what one fGPU is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, field_validator

from common.errors import InputError
from common.gpu.units import MILLI, format_gpus, parse_gpus
from common.sentence import Sentence
from common.strict import StrictModel

__all__ = [
    "MAX_DEVICES",
    "MAX_GPUS",
    "MILLI",
    "GpuShare",
    "Granularity",
    "check_share",
    "divide",
    "format_gpus",
    "memory_limit",
    "parse_gpus",
]

MAX_GPUS = 16
"""Most GPUs of a node, and most GPUs of a container."""
MAX_DEVICES = 8 * MAX_GPUS
"""Most devices of a node: each of its GPUs may be cut into up to seven MIG devices."""


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A part of one GPU that a container has; of a MIG device it has the whole, whatever `milli` says.

    Messages that carry it hold it to its constraints and refuse unknown keys; code that makes one answers for itself.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    uuid: Annotated[str, Field(max_length=128)]
    index: Annotated[int, Field(ge=0)]
    milli: Annotated[int, Field(gt=0, le=MILLI)]


class Granularity(StrictModel):
    """How one GPU is divided: into `fgpu_per_gpu` fGPU, each in `steps_per_fgpu` steps.

    Both together must divide 1,000, so that every share is a whole number of milli-GPU and shares add up exactly.
    """

    fgpu_per_gpu: int = Field(default=2, ge=1, le=100, description="how many fGPU one GPU is")
    steps_per_fgpu: int = Field(default=10, ge=1, le=100, validate_default=True, description="steps of one fGPU")

    @field_validator("steps_per_fgpu")
    @classmethod
    def _divides(cls, value: int, info: object) -> int:
        per_gpu = getattr(info, "data", {}).get("fgpu_per_gpu", 1)
        if MILLI % (per_gpu * value):
            raise ValueError(f"{per_gpu} fGPU of {value} steps each do not divide {MILLI} milli-GPU without a rest")
        return value

    @property
    def fgpu_milli(self) -> int:
        """Milli-GPU of one fGPU."""
        return MILLI // self.fgpu_per_gpu

    @property
    def step_milli(self) -> int:
        """The smallest share, in milli-GPU; every share is a multiple of it."""
        return self.fgpu_milli // self.steps_per_fgpu


def check_share(milli: int, granularity: Granularity, field: str = "gpu_milli") -> None:
    """Refuse a share that is not above 0, above a container's limit, or too fine; raises InputError."""
    step = granularity.step_milli
    if milli <= 0:
        raise InputError(
            Sentence("a share of {gpus} GPU is not above 0", gpus=format_gpus(milli)),
            where=field,
            hint=Sentence("ask for at least {gpus} GPU", gpus=format_gpus(step)),
        )
    if milli > MAX_GPUS * MILLI:
        raise InputError(
            Sentence("{gpus} GPUs are more than a container may hold", gpus=format_gpus(milli)),
            where=field,
            hint=Sentence("ask for at most {most} GPUs", most=MAX_GPUS),
        )
    if milli % step:
        lower, upper = milli // step * step, (milli // step + 1) * step
        near = {"lower": format_gpus(lower), "upper": format_gpus(upper)}
        raise InputError(
            Sentence(
                "a share of {gpus} GPU is finer than the granularity allows (steps of {step} GPU)",
                gpus=format_gpus(milli),
                step=format_gpus(step),
            ),
            where=field,
            hint=Sentence("ask for {lower} or {upper} GPU", **near)
            if lower
            else Sentence("ask for {upper} GPU", **near),
        )


def memory_limit(memory_mib: int, milli: int) -> int:
    """Return the memory limit of a share of a GPU with so much memory, in whole MiB: 0.25 of 8,192 is 2,048."""
    return memory_mib * milli // MILLI


def divide(milli: int) -> list[int]:
    """Return the shares of single GPUs that make up so many milli-GPU: 2.5 GPUs are two whole ones and a half."""
    whole, rest = divmod(milli, MILLI)
    return [MILLI] * whole + ([rest] if rest else [])
