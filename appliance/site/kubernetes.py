"""A worker that stands for a whole Kubernetes cluster: the part `kubernetes` of a node in `site.yml`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

from common.places import Path

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
Folder = Annotated[str, Field(pattern=r"^(/\.{0,2}[A-Za-z0-9_-][A-Za-z0-9._-]*)+$")]
Claim = Annotated[str, Field(pattern=rf"^{_LABEL}(\.{_LABEL})*$", max_length=253)]
LabelName = Annotated[
    str, Field(pattern=rf"^({_LABEL}(\.{_LABEL})*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?$")
]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")]


class Cluster(BaseModel):
    """A cluster that other people look after. `api` is the URL of its API server; pods of sessions are in `namespace`.

    GPUs are asked for as `gpu_resource`. Only machines with the labels `machines` are used. `claims` leads from folders
    that the site's workers have, such as the one of the sessions' volumes, to claims of the cluster's storage that hold
    the same. `host_folders` are folders of the cluster's machines that sessions may mount. A pod that finds no machine
    within `schedule_s` seconds is taken back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    api: Annotated[str, Field(pattern=r"^https://[A-Za-z0-9.:\[\]-]+$")]
    namespace: Annotated[str, Field(pattern=rf"^{_LABEL}$")] = "penstock"
    gpu_resource: Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9_.-]+$")] = "nvidia.com/gpu"
    machines: dict[LabelName, LabelValue] = Field(default_factory=dict)
    claims: dict[Folder, Claim] = Field(default_factory=dict)
    host_folders: list[Folder] = Field(default_factory=list)
    schedule_s: float = Field(default=10, gt=0, le=20)


class Member(Protocol):
    """A node of the site, as far as a cluster is concerned."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kubernetes(self) -> Cluster | None:
        """The cluster that it stands for."""


def cluster_findings(nodes: Sequence[Member]) -> Iterator[tuple[Path, str, str]]:
    """Yield what is wrong with the clusters of nodes: where, what, and the hint."""
    for index, node in enumerate(nodes):
        if node.kubernetes is None:
            continue
        path: Path = ("nodes", index)
        for field in ("simulated_gpus", "enforcement"):
            if getattr(node, field) is not None:
                reason = f"{node.name} stands for a Kubernetes cluster, whose GPUs are its own and whole"
                yield (*path, field), reason, f"remove {field}"
        for position, folder in enumerate(node.kubernetes.host_folders):
            for root, claim in node.kubernetes.claims.items():
                if f"{folder}/".startswith(f"{root}/"):
                    reason = f"{folder} is in the claim {claim}, which holds {root}"
                    yield (*path, "kubernetes", "host_folders", position), reason, "name another folder, or none"
