"""How GPU shares are held. Pure; the order of the kinds is their strength, best first."""

from __future__ import annotations

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

    def is_at_least(self, wanted: Enforcement) -> bool:
        """Return whether this kind holds shares at least as well as `wanted`."""
        return _ORDER.index(self) <= _ORDER.index(wanted)


_ORDER = tuple(Enforcement)
