"""What the scheduler sees and what it answers: immutable values, integers in milli-GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from appliance.gpu.share import MILLI

MAX_SESSIONS_PER_NODE = 100


@dataclass(frozen=True)
class GpuState:
    """A GPU and what is in use of it."""

    index: int
    uuid: str
    used_milli: int = 0

    @property
    def free_milli(self) -> int:
        """What may still be given away; never negative, whatever the records say."""
        return max(0, MILLI - self.used_milli)


@dataclass(frozen=True)
class NodeState:
    """A node that takes sessions now; `sessions` is how many hold something on it."""

    name: str
    gpus: tuple[GpuState, ...]
    sessions: int = 0


@dataclass(frozen=True)
class ProjectState:
    """A project: its quota is a cap on what its sessions hold together."""

    name: str
    quota_milli: int
    used_milli: int = 0


@dataclass(frozen=True)
class Waiting:
    """A session in the queue."""

    id: str
    project: str
    gpu_milli: int
    created_at: datetime


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment: the ready nodes, the projects and the queue."""

    nodes: tuple[NodeState, ...]
    projects: tuple[ProjectState, ...]
    queue: tuple[Waiting, ...]


@dataclass(frozen=True)
class Share:
    """A part of one GPU."""

    index: int
    uuid: str
    milli: int


@dataclass(frozen=True)
class Placement:
    """Where a session shall run."""

    node: str
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Decision:
    """Every session of the queue stands in one of both: placed, or waiting with a reason."""

    placements: Mapping[str, Placement]
    reasons: Mapping[str, str]
