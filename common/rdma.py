"""The InfiniBand of a node as its agent tells it: ports of HCAs, and how near the GPUs are to them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from common.messages import Report

MIN_GBPS = 40
"""Gbit/s that a port has at least which sessions use: slower ones are no gain over the network that every node has."""
MAX_HCAS = 64
"""Most ports of a node."""
MAX_WORD = 64
"""Most characters of a name or a word of a driver."""

INFINIBAND, ACTIVE = "InfiniBand", "ACTIVE"
"""The words of the kernel for a port of this kind, and for one that carries data."""


def _printable(value: object) -> object:
    if not isinstance(value, str):
        return value
    return "".join(char if " " <= char <= "~" else "?" for char in value[:MAX_WORD])


Word = Annotated[str, BeforeValidator(_printable), Field(max_length=MAX_WORD)]
"""A word of a driver: whatever it is, every terminal can show it."""


class Hca(Report):
    """A port of an HCA by its `name` (`mlx5_0:1`).

    `rate_gbps` is in Gbit/s, `link_layer` InfiniBand or Ethernet (RoCE), `state` as the kernel calls it. `numa_node` is
    where it is plugged in, None where the machine does not say, and `distances` leads from the index of a GPU to how
    far that is by the kernel's measure: 10 is the same NUMA node.
    """

    name: Word
    rate_gbps: float = Field(default=0, ge=0, le=1_000_000, allow_inf_nan=False)
    link_layer: Word = ""
    state: Word = ""
    numa_node: int | None = None
    distances: dict[int, int] = Field(default_factory=dict, max_length=64)

    @property
    def is_usable(self) -> bool:
        """Whether sessions may use it: InfiniBand, up, and fast enough. RoCE needs an address in the container."""
        return self.link_layer == INFINIBAND and self.state == ACTIVE and self.rate_gbps >= MIN_GBPS
