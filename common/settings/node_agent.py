"""Settings of the node agents that a site chooses, in several parts of `site.yml`. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from common.gpu.kinds import Compute, Enforcement
from common.gpu.share import MAX_GPUS
from common.settings.options import WORDS, Place, Port
from common.strict import StrictModel

Accelerator = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$")]
HcaName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,48}(:[0-9]{1,3})?$")]
Order = Annotated[list[Enforcement], Field(min_length=1), WORDS]
"""Kinds of enforcement in the order in which a node tries them."""


def _range(value: Any) -> Any:
    if not isinstance(value, str | int):
        return value
    first, dash, last = str(value).partition("-")
    if not dash:
        raise ValueError("a range of ports is written FIRST-LAST")
    return first, last


def _rises(value: tuple[int, int]) -> tuple[int, int]:
    if value[0] > value[1]:
        raise ValueError(f"{value[0]} is above {value[1]}")
    return value


def _word(value: Any) -> Any:
    """YAML reads a bare `off` as false."""
    return Compute.OFF if value is False else value


PortRange = Annotated[tuple[Port, Port], BeforeValidator(_range), AfterValidator(_rises)]


class NodeAgentSettings(StrictModel):
    """What holds for the agents of all workers: the part `node_agent`."""

    memory_reserve_mib: int = Field(
        default=1024,
        ge=0,
        description="memory of a worker, in MiB, that sessions do not get: for its system, its container engine and "
        "its agent",
    )
    pids_limit: int = Field(default=4096, ge=64, description="processes and threads of one session")
    port_range: PortRange = Field(
        default=(57000, 57999),
        description="ports behind which those of sessions are offered to the edge",
    )
    list_interval_s: float = Field(
        default=30,
        gt=0,
        le=3600,
        description="seconds between two looks at all containers and networks of a worker, beside the container "
        "engine's events; what was missed is found, and what somebody took away is mended",
    )
    network_mtu: int | None = Field(
        default=None,
        ge=1280,
        le=65535,
        description="largest packets of sessions, in bytes, as for jumbo frames; between containers on several nodes "
        "at most what the interfaces carry less 50 for VXLAN, which is the default there; elsewhere that is 1500",
    )
    metrics_interval_s: float = Field(
        default=15, gt=0, le=3600, description="seconds between two samples of what sessions use"
    )


class GpuSettings(StrictModel):
    """How shares of GPUs are held: in the part `gpu`, where the names have no `gpu_`."""

    enforcement: Order = Field(
        default=list(Enforcement),
        description="how shares are held: kinds in the order in which nodes try them "
        "([what each does](admin.md#gpu-shares)); without `none`, GPUs that no kind can hold go out whole only",
    )
    gpu_compute: Annotated[Compute, BeforeValidator(_word)] = Field(
        default=Compute.STRICT,
        description="how the library divides a GPU's time: `strict` by the shares alone, `fair` with what the others "
        "leave idle, `off` not at all",
    )
    gpu_period_ms: int = Field(
        default=200, ge=20, le=2000, description="milliseconds in which everybody who shares a GPU has a turn"
    )
    gpu_slack_mib: int = Field(
        default=512,
        ge=0,
        le=65536,
        description="how far over its limit a session's GPU memory may be before it is stopped, in MiB for each of its "
        "processes on the GPU",
    )
    accelerators: Annotated[list[Accelerator], Field(min_length=1), WORDS] = Field(
        default=["nvidia"], description="kinds of accelerators that workers look for"
    )


class SimulatedGpuSettings(StrictModel):
    """What the GPUs that a lab pretends to have look like: in `simulated_gpus` of a node."""

    simulated_gpu_model: str = Field(default="Simulated GPU", description="their name")
    simulated_gpu_memory_mib: int = Field(default=16384, ge=1, description="memory of each, in MiB")
    simulated_gpu_islands: int = Field(
        default=1, ge=1, le=MAX_GPUS, description="how many islands of about equal size they form"
    )


class LocationSettings(StrictModel):
    """Where a worker stands, by which the containers of a session are kept together: keys of a node."""

    region: Place = Field(default="", description="region of the node")
    switch: Place = Field(default="", description="leaf switch of the node")
    hcas: Annotated[list[HcaName], WORDS] = Field(
        default=[], description="HCAs that sessions use, such as `mlx5_0` or `mlx5_0:1`; none named: all that are fit"
    )
