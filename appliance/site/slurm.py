"""Slurm in the site file: who lends the places of sessions, and the part `slurm` of a site and of its nodes. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from common.settings.options import PlainPath
from common.strict import StrictModel

STATE_FOLDER = "/var/lib/slurm/slurmctld"
CONTROLLER_PORT, NODE_PORT, ACCOUNTING_PORT = 6817, 6818, 6819


class Engine(StrEnum):
    """Who lends the places of sessions: nobody has to, or Slurm."""

    DIRECT = "direct"
    SLURM = "slurm"


class SlurmNode(StrictModel):
    """A node as Slurm counts it."""

    cores: int = Field(ge=1, description="cores, as `nproc` says on the node")
    memory_mib: int = Field(ge=1, description="memory, as `free -m` says on the node")
    gpus: int = Field(
        default=0,
        ge=0,
        description="so many GPUs, the last ones, belong to people with `sbatch`, and no session gets them",
    )


class SlurmSettings(StrictModel):
    """Where Slurm's controllers are, and what they and its accounting keep."""

    backup_controller: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] | None = Field(
        default=None,
        description="node that takes over when the master is away; both have `state_folder` on one storage",
    )
    state_folder: PlainPath = Field(default=STATE_FOLDER, description="folder of the controllers with Slurm's jobs")
    accounting_days: int = Field(
        default=400, ge=1, description="days that Slurm's accounting keeps jobs which have ended"
    )
    user_id: int = Field(
        default=64200,
        ge=100,
        le=65000,
        description="number of the user `penstock`, whose jobs sessions are, on all nodes of Slurm",
    )
