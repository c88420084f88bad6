"""Bodies of the node endpoints."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from api.resources.schemas import Request, View
from api.tables.nodes import NodeMode, NodeState
from common.gpu.kinds import Enforcement
from common.interfaces import MAX_NAME


class ModeRequest(Request):
    """What is wanted of a node. While it is `draining`, people have `drain_timeout_s` to save their work."""

    mode: NodeMode
    drain_timeout_s: int = Field(default=600, ge=0, le=7 * 24 * 3600)


class NodeChange(Request):
    """What of a node is changed: the network interface by which its containers meet those of other nodes, by its name.

    An empty one is that which has the node's `address`.
    """

    interface: str = Field(max_length=MAX_NAME)


class GpuView(View):
    """A GPU of a node, or a MIG device: a slice of the GPU `parent` by its `profile`, which goes to one container.

    `capacity_milli` is how much of a GPU it is, 1,000 unless it is a slice; `used_milli` is what sessions hold of that.
    `enforcement` is how shares of it are held, `accelerator` the plugin of the agent that found it.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    simulated: bool
    island: int
    accelerator: str
    enforcement: Enforcement
    parent: str
    profile: str
    capacity_milli: int
    used_milli: int


class HcaView(View):
    """A port of an HCA of a node by its `name` (`mlx5_0:1`); `link_layer` is InfiniBand, or Ethernet for RoCE.

    `numa_node` is where it is plugged in, null where the machine does not say; `distances` leads from the index of a
    GPU to how far that is by the kernel's measure, where 10 is the same NUMA node.
    """

    name: str
    rate_gbps: float
    link_layer: str
    state: str
    numa_node: int | None
    distances: dict[str, int]


class InterfaceView(View):
    """A network interface of a node; `speed_mbps` is null where the kernel does not know it."""

    name: str
    addresses: list[str]
    up: bool
    speed_mbps: int | None
    mtu: int


class NodeView(View):
    """A node. `endpoint` is where its agent answers, `message` what is wrong with the node or what became of it.

    `fractions` says whether its GPUs may be shared (fGPU), `enforcement` how the shares are held: the weakest kind
    among its GPUs. `enforcement_pending` says which kind follows and what it waits for. `gpu_milli` is what its GPUs
    are together, `used_milli` what sessions hold of them. `unknown_containers` are of sessions that the database does
    not know: they are left alone, and the node takes nothing new. `orphaned_milli` is what these, and others that no
    session has there, hold of each GPU by its UUID: it is given to nobody until they are gone. Nor takes anything new
    one whose clock is wrong: `clock_offset_s` is how far it is ahead of the API's then, and 0 as long as that is within
    bounds. `missing_storages` says by the names of storages why it lacks them: it takes nothing that mounts one of
    these. `unhealthy` names the failing checks for which it takes nothing new, `withheld` says why the launcher lends
    nothing of it. `rdma` says whether sessions may use its `hcas`; `no_rdma` why not. Of its
    network `interfaces` the `interface` carries what its containers say to those of other nodes; empty: that which has
    its `address`, as it does where the one that was chosen is gone.
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
    orphaned_milli: dict[str, int]
    clock_offset_s: int
    groups: list[str]
    agent_version: str
    engine_version: str
    driver_version: str
    cuda_version: str
    os: str
    enforcement: Enforcement
    enforcement_pending: str
    fractions: bool
    nvlink: bool
    rdma: bool
    no_rdma: str
    hcas: list[HcaView]
    interfaces: list[InterfaceView]
    interface: str
    missing_storages: dict[str, str]
    unhealthy: str
    withheld: str
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    used_milli: int
    gpus: list[GpuView]
    sessions: int
    started_at: datetime | None
    last_seen: datetime | None
