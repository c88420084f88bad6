"""A site with a Kubernetes cluster, and what the cluster's administrator applies for it."""

from __future__ import annotations

from typing import Any

from appliance.site.kubernetes_manifests import manifests
from appliance.site.model import Site


def site(*egress: str, **cluster: Any) -> Site:
    """Return a site whose node k8s1 stands for a cluster, and that opens some destinations to all sessions."""
    nodes = [
        {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
        {
            "name": "k8s1",
            "address": "10.0.0.3",
            "roles": ["worker"],
            "agent_port": 6001,
            "kubernetes": {"api": "https://10.0.0.50:6443"} | cluster,
        },
    ]
    return Site.model_validate({"name": "north", "nodes": nodes, "sessions": {"egress": egress}})


MANIFESTS = manifests(site(), "k8s1")
