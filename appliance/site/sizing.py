"""Sizes of a site's machines: what the services that each runs need at least. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from appliance.site.model import NodeRole

RECOMMENDED = 2
"""So many times what is needed is best for speed."""


@dataclass(frozen=True)
class Size:
    """What a service needs: processor cores and memory in GiB; `disk_gib` of fast disk, and what else in words."""

    service: str
    role: NodeRole | None
    cores: int
    memory_gib: int
    disk_gib: int = 0
    note: str = ""

    def times(self, factor: int) -> Size:
        """Return so many times as much of cores and memory."""
        return Size(self.service, self.role, self.cores * factor, self.memory_gib * factor, self.disk_gib, self.note)


SIZES = (
    Size("control API", NodeRole.MASTER, 2, 4),
    Size("agent", NodeRole.WORKER, 4, 32, 512, "an NVIDIA GPU for work on GPUs; SSD"),
    Size("console", NodeRole.MASTER, 2, 4),
    Size("apps", NodeRole.MASTER, 2, 4),
    Size("PostgreSQL", NodeRole.MASTER, 2, 4),
    Size("Redis", None, 0, 0, note="no part of Penstock: PostgreSQL does its work"),
    Size("etcd", None, 0, 0, note="no part of Penstock: PostgreSQL does its work"),
)


def needed(roles: Collection[NodeRole]) -> Size:
    """Return what all services of a machine with these roles need together."""
    mine = [size for size in SIZES if size.role in roles]
    return Size(
        ", ".join(size.service for size in mine),
        None,
        sum(size.cores for size in mine),
        sum(size.memory_gib for size in mine),
        max((size.disk_gib for size in mine), default=0),
    )


def lacking(size: Size, cores: int, memory_mib: int) -> str:
    """Return in words what a machine has too little of; nothing where it is large enough.

    A machine's kernel keeps some of the memory that is plugged in, up to a tenth of it.
    """
    short = [f"{cores} of {size.cores} cores"] if cores < size.cores else []
    if memory_mib < size.memory_gib * 1024 * 9 // 10:
        short.append(f"{memory_mib / 1024:.1f} of {size.memory_gib} GiB memory")
    return ", ".join(short)
