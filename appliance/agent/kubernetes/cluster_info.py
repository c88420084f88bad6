"""A whole cluster as the node that it is to the control API. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version

from appliance.agent.kubernetes.capacity import Capacity, Machine
from common.protocol import NodeInfo


def base_node_info(name: str, *, region: str, switch: str, started_at: datetime) -> NodeInfo:
    """Return what a cluster tells before anything is known of it."""
    return NodeInfo(
        name=name,
        agent_version=version("penstock"),
        engine_version="Kubernetes",
        os="",
        cpu_milli=0,
        memory_mib=0,
        fractions=False,
        apart=True,
        region=region,
        switch=switch,
        started_at=started_at,
    )


def describe(base: NodeInfo, capacity: Capacity, machines: Sequence[Machine]) -> NodeInfo:
    """Return what a cluster tells when its machines are known."""
    kinds = sorted({machine.os for machine in machines if machine.os})
    systems = f" of {', '.join(kinds)}" if kinds else ""
    return base.model_copy(
        update={
            "os": f"{len(machines)} machine{'s' * (len(machines) != 1)}{systems}",
            "cpu_milli": capacity.cpu_milli,
            "memory_mib": capacity.memory_mib,
            "gpus": list(capacity.devices),
        }
    )
