"""Kinds of enforcement of GPU shares. Pure; the order of the kinds is their strength, best first."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Enforcement(StrEnum):
    """A kind of enforcement, from the strongest to none.

    `driver`: memory limits per container by NVIDIA's driver. `mig`: slices of the hardware. `shim`: our preload
    library. `mps`: limits per client of CUDA's multi-process service. `none`: shares are accounted for, not held.
    """

    DRIVER = "driver"
    MIG = "mig"
    SHIM = "shim"
    MPS = "mps"
    NONE = "none"

    @property
    def rank(self) -> int:
        """Place in the order of strength, 0 for the best: a kind holds shares as well as any of its rank or above."""
        return KINDS.index(self)

    @staticmethod
    def weakest(kinds: Iterable[Enforcement]) -> Enforcement:
        """Return the weakest of some kinds, `none` where there are none."""
        return max(kinds, key=KINDS.index, default=Enforcement.NONE)


ALONE = frozenset({Enforcement.MPS})
"""Kinds that hold a share of a GPU only where it is alone in its container."""


class Compute(StrEnum):
    """How the time of a GPU is shared where we share it: not at all, each its part and no more, or idle parts too."""

    OFF = "off"
    STRICT = "strict"
    FAIR = "fair"


KINDS = tuple(Enforcement)
"""All kinds, the best first."""
