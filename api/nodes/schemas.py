"""Bodies of the node endpoints."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from api.model import Request, View
from api.nodes.models import NodeMode, NodeState


class ModeRequest(Request):
    """What is wanted of a node. While it is `draining`, people have `drain_timeout_s` to save their work."""

    mode: NodeMode
    drain_timeout_s: int = Field(default=600, ge=0, le=7 * 24 * 3600)


class GpuView(View):
    """A GPU of a node; `used_milli` is what sessions hold of its 1,000 milli-GPU."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    simulated: bool
    island: int
    used_milli: int


class NodeView(View):
    """A node. `endpoint` is where its agent answers, `message` what is wrong with the node or what became of it.

    `fractions` says whether its GPUs may be shared (fGPU), `enforcement` how the shares are held. `gpu_milli` is what
    its GPUs are together, `used_milli` what sessions hold of them. `unknown_containers` are of sessions that the
    database does not know: they are left alone, and the node takes nothing new.
    """

    id: UUID
    name: str
    endpoint: str
    address: str
    port: int
    region: str
    switch: str
    state: NodeState
    mode: NodeMode
    drain_until: datetime | None
    message: str
    unknown_containers: int
    groups: list[str]
    agent_version: str
    engine_version: str
    driver_version: str
    cuda_version: str
    os: str
    enforcement: str
    fractions: bool
    nvlink: bool
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    used_milli: int
    gpus: list[GpuView]
    sessions: int
    started_at: datetime | None
    last_seen: datetime | None
