"""Containers as the supervisor knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from appliance.agent.docker import inspections
from appliance.agent.docker.cores import NO_CORES, CoreGrant
from appliance.agent.docker.inspections import Inspection
from common.gpu.share import GpuShare
from common.nccl import NcclEvidence
from common.protocol import ContainerState, ContainerStatus, GangNetwork


def is_collective(gpus: Sequence[GpuShare], network: GangNetwork | None) -> bool:
    """Return whether a container with these GPUs and this network has other GPUs to reach."""
    return len(gpus) > 1 or bool(gpus and network)


@dataclass
class KnownContainer:
    """One container.

    `launching` while a launch of ours has not come to its end; `nowhere` where it failed before Docker had a container.
    `overtaken` where the container may have ended while Docker's answer to the launch was on its way. `offered` leads
    from those of its ports that the edge may reach to ours, and is None while none were opened; `closed` says why.
    `disk_mib` is what it may write beside its mounts, 0 without limit; `end_reason` why we end it. `warning` is what
    Docker tells that is wrong with it. `nccl` is what its log told of the ways between GPUs, where it is `collective`:
    its GPUs reach each other, or those of other containers. It may run while its `lease` is held here; empty: always.
    """

    digest: str
    state: ContainerState
    granted: CoreGrant = NO_CORES
    disk_mib: int = 0
    ports: Sequence[int] = ()
    offered: dict[int, int] | None = None
    closed: str = ""
    end_reason: str = ""
    warning: str = ""
    nccl: NcclEvidence | None = None
    lease: str = ""
    collective: bool = False
    launching: bool = False
    nowhere: bool = False
    overtaken: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, inspection: Inspection, state: ContainerState) -> Self:
        """Return what Docker's answer to `inspect` tells of a container of ours that is in a state."""
        values = inspections.label_values(inspection)
        return cls(
            values.digest,
            state,
            granted=values.granted,
            disk_mib=values.disk_mib,
            ports=values.ports,
            warning=state.warning,
            collective=is_collective(values.gpus, values.network),
            lease=values.lease,
        )

    def seen(self, state: ContainerState) -> ContainerState:
        """Return a state that Docker has just told, and keep what it warns of."""
        self.warning = state.warning
        return state

    def dress(self, state: ContainerState) -> ContainerState:
        """Return a state of this container with its ports and what is wrong with it while it runs."""
        state = state.model_copy(update={"nccl": self.nccl})
        if state.status is not ContainerStatus.RUNNING:
            return state
        update = {"ports": self.offered or {}, "error": state.error or self.closed, "warning": self.warning}
        return state.model_copy(update=update)
