"""A worker that stands for a whole Kubernetes cluster: the part `kubernetes` of a node in `site.yml`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Protocol

from pydantic import Field

from common.places import Path
from common.settings.kubernetes import ClusterUrl, KubernetesSettings
from common.settings.options import keys_without

Network = IPv4Network | IPv6Network

NEVER_REACHED: tuple[Network, ...] = tuple(
    map(
        ip_network,
        # the link with every cloud's metadata service, and where some have theirs beside it
        ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "fe80::/10", "fd00:ec2::254/128"),
    )
)
"""What sessions reach by no setting: whoever asks a metadata service has the rights of the machine."""


class KubernetesCluster(KubernetesSettings):
    """A cluster that other people look after.

    `claims` leads from folders that the site's workers have, such as the one of the sessions' PVCs, to claims of the
    cluster's storage that hold the same.
    """

    model_config = keys_without("kubernetes_")

    kubernetes_api: Annotated[ClusterUrl, Field(min_length=1)]
    egress: list[Network] = Field(
        default_factory=list,
        description="networks that sessions reach beside the site's services; they stand in the manifests "
        "([more](admin.md#a-kubernetes-cluster-as-a-node))",
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
        for position, network in enumerate(node.kubernetes.egress):
            if within := next((never for never in NEVER_REACHED if lies_in(network, never)), None):
                reason = f"{network} lies in {within}, where metadata services tell the secrets of machines"
                yield (*path, "kubernetes", "egress", position), reason, "name another network, or none"


def lies_in(inner: Network, outer: Network) -> bool:
    """Return whether a network is part of another one."""
    if isinstance(inner, IPv4Network) and isinstance(outer, IPv4Network):
        return inner.subnet_of(outer)
    return isinstance(inner, IPv6Network) and isinstance(outer, IPv6Network) and inner.subnet_of(outer)
