"""How a site shares its GPUs: the part `gpu` of `site.yml`. Pure: no file, no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from common.gpu.kinds import Enforcement
from common.gpu.share import Split
from common.places import Path

Order = Annotated[list[Enforcement], Field(min_length=1)]
"""Kinds of enforcement in the order in which a node tries them."""

Accelerator = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$")]
Package = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(==[A-Za-z0-9.+!_-]+)?$")]


def _word(value: Any) -> Any:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


Compute = Annotated[Literal["off", "strict", "fair"], BeforeValidator(_word)]


class SharedGpus(Split):
    """How GPUs are divided, and how the parts are held.

    A node takes the first kind of `enforcement` that it can; an order without `none` at its end makes GPUs that none of
    them can hold whole ones. `compute` says how the library divides a GPU's time: `strict` by the shares alone, `fair`
    with what the others leave idle, `off` not at all. A period of `period_ms` milliseconds goes round all who share a
    GPU. A session whose GPU memory is more than `slack_mib` MiB over its limit is stopped.

    `accelerators` are the kinds of accelerators that workers look for; those beside NVIDIA's come with `plugins`,
    Python packages of the publication.
    """

    enforcement: Order = Field(default_factory=lambda: list(Enforcement))
    compute: Compute = "strict"
    period_ms: int = Field(default=200, ge=20, le=2000)
    slack_mib: int = Field(default=512, ge=0, le=65536)
    accelerators: list[Accelerator] = Field(default_factory=lambda: ["nvidia"], min_length=1)
    plugins: list[Package] = Field(default_factory=list)


def order_findings(order: Sequence[Enforcement], path: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield what is wrong with an order of kinds that stands at `path`: where, what, and the hint."""
    for index, kind in enumerate(order):
        if kind in order[:index]:
            yield (*path, index), f"{kind} stands twice", "name each kind once"
        elif Enforcement.NONE in order[:index]:
            reason = f"{kind} is never tried, because every node can do `none`, which stands before it"
            yield (*path, index), reason, "put `none` at the end, or leave it out"
