"""Bodies of the node endpoints."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from api.model import View
from api.nodes.models import Node, NodeState


class GpuView(View):
    """A GPU of a node; `used_milli` is what sessions hold of its 1,000 milli-GPU."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    simulated: bool
    used_milli: int


class NodeView(View):
    """A node; `enforcement` is how GPU shares are held on it."""

    id: UUID
    name: str
    address: str
    port: int
    state: NodeState
    agent_version: str
    engine_version: str
    os: str
    enforcement: str
    cpu_milli: int
    memory_mib: int
    gpus: list[GpuView]
    last_seen: datetime | None

    @classmethod
    def of(cls, node: Node, used: dict[tuple[UUID, str], int]) -> NodeView:
        """Return the view of a row; `used` is what sessions hold by node and GPU."""
        gpus = [
            GpuView(
                index=gpu.index,
                uuid=gpu.uuid,
                model=gpu.model,
                memory_mib=gpu.memory_mib,
                simulated=gpu.simulated,
                used_milli=used.get((node.id, gpu.uuid), 0),
            )
            for gpu in node.gpus
        ]
        fields = {name: getattr(node, name) for name in cls.model_fields if name != "gpus"}
        return cls(**fields, gpus=gpus)
