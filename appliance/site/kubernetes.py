"""A worker that stands for a whole Kubernetes cluster: the part `kubernetes` of a node in `site.yml`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Protocol

from pydantic import Field

from common.places import Path
from common.settings.node_agent import ClusterUrl, KubernetesSettings
from common.settings.options import PlainPath, keys_without


class KubernetesCluster(KubernetesSettings):
    """A cluster that other people look after.

    `claims` leads from folders that the site's workers have, such as the one of the sessions' PVCs, to claims of the
    cluster's storage that hold the same.
    """

    model_config = keys_without("kubernetes_")

    kubernetes_api: Annotated[ClusterUrl, Field(min_length=1)]
    host_folders: list[PlainPath] = Field(
        default_factory=list, description="folders of the cluster's machines that sessions may mount"
    )


class Member(Protocol):
    """A node of the site, as far as a cluster is concerned."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kubernetes(self) -> KubernetesCluster | None:
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
            for root, claim in node.kubernetes.kubernetes_claims.items():
                if f"{folder}/".startswith(f"{root}/"):
                    reason = f"{folder} is in the claim {claim}, which holds {root}"
                    yield (*path, "kubernetes", "host_folders", position), reason, "name another folder, or none"
