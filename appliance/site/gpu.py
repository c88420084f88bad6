"""GPUs of a site and how it shares them: the part `gpu` of `site.yml`. Pure: no file, no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from common.gpu.kinds import Enforcement
from common.gpu.share import Granularity
from common.places import Path
from common.settings.node_agent import GpuSettings
from common.settings.options import keys_without
from common.strict import StrictModel

Package = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(==[A-Za-z0-9.+!_-]+)?$")]


class ExpectedGpus(StrictModel):
    """GPUs that a worker has: `model` are words of the name that each of them has. A worker without any has 0."""

    count: int = Field(ge=0)
    model: str | None = Field(default=None, min_length=1)


class SharedGpus(Granularity, GpuSettings):
    """How GPUs are divided, and how the parts are held.

    A node takes the first kind of `enforcement` that it can; an order without `none` at its end makes GPUs that none of
    them can hold whole ones. Accelerators beside NVIDIA's come with `plugins`, Python packages of the publication.
    """

    model_config = keys_without("gpu_")

    plugins: list[Package] = Field(
        default_factory=list, description="Python packages of the bundle that bring accelerators beside NVIDIA's"
    )


def order_findings(order: Sequence[Enforcement], path: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield what is wrong with an order of kinds that stands at `path`: where, what, and the hint."""
    for index, kind in enumerate(order):
        if kind in order[:index]:
            yield (*path, index), f"{kind} stands twice", "name each kind once"
        elif Enforcement.NONE in order[:index]:
            reason = f"{kind} is never tried, because every node can do `none`, which stands before it"
            yield (*path, index), reason, "put `none` at the end, or leave it out"
