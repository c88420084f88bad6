"""Manifests that the administrator of a Kubernetes cluster applies before it is a node of the site. Pure.

A namespace that admits no pod with rights of its machine, whoever makes it; an account with the calls of the agent and
no other; and a network policy: sessions are reached by the agent alone, so not by each other, and reach what the site
says.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

from appliance.site.kubernetes import NEVER_REACHED, KubernetesCluster, Network, lies_in
from appliance.site.model import Node, Site
from common import egress
from common.egress import Destination
from common.errors import InputError

Manifest = dict[str, Any]

ACCOUNT = "penstock-agent"
_RBAC = "rbac.authorization.k8s.io"
# what machines have, and what pods of others take of it
_LOOKS = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}]
_MAKES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    # older clusters ask for the first, newer ones for the second
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
]


def manifests(site: Site, name: str) -> list[Manifest]:
    """Return the objects for the node of that name; raises InputError where it stands for no cluster."""
    node = next((node for node in site.nodes if node.name == name), None)
    if node is None or node.kubernetes is None:
        clusters = [node.name for node in site.nodes if node.kubernetes]
        raise InputError(
            f"{name} stands for no Kubernetes cluster",
            where="nodes",
            hint=f"name one that does: {', '.join(clusters) or 'the site has none'}",
        )
    return [*_namespace(node.kubernetes), *_account(node.kubernetes), _policy(site, node, node.kubernetes)]


def _namespace(cluster: KubernetesCluster) -> Iterator[Manifest]:
    profile = cluster.kubernetes_pod_security.value
    labels = {f"pod-security.kubernetes.io/{mode}": profile for mode in ("enforce", "audit", "warn")}
    metadata = {"name": cluster.kubernetes_namespace, "labels": labels}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _account(cluster: KubernetesCluster) -> Iterator[Manifest]:
    namespace = cluster.kubernetes_namespace
    here = {"name": ACCOUNT, "namespace": namespace}
    everywhere = {"name": f"{ACCOUNT}-{namespace}"}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here, "automountServiceAccountToken": False}
    # a token that stays; where tokens have to be short-lived, others are written to the agent's file as they come
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**here, "annotations": {"kubernetes.io/service-account.name": ACCOUNT}},
        "type": "kubernetes.io/service-account-token",
    }
    for kind, metadata, rules in (("ClusterRole", everywhere, _LOOKS), ("Role", here, _MAKES)):
        yield {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", **here}],
        }


def _policy(site: Site, node: Node, cluster: KubernetesCluster) -> Manifest:
    """Return what keeps sessions apart: each pod of the namespace is reached by the agent, and by nobody else."""
    names = {"namespaceSelector": _labelled("kubernetes.io/metadata.name", "kube-system")}
    resolver = {**names, "podSelector": _labelled("k8s-app", "kube-dns")}
    ways: list[Manifest] = [
        {"to": [resolver], "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]},
        *(_destination(egress.parse(text)) for text in (*site.session_services, *site.sessions.egress)),
    ]
    if cluster.egress:
        ways.append({"to": [_block(network) for network in cluster.egress]})
    addresses = [address for address in (node.address, node.ib_address) if address is not None]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "penstock-sessions", "namespace": cluster.kubernetes_namespace},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [_block(ip_network(address)) for address in addresses]}],
            "egress": ways,
        },
    }


def _destination(destination: Destination) -> Manifest:
    to = {"to": [_block(destination.network)]}
    if destination.ports is None:
        return to
    first, last = destination.ports
    ports = {"protocol": destination.protocol.upper(), "port": first, **({"endPort": last} if last > first else {})}
    return to | {"ports": [ports]}


def _block(network: Network) -> Manifest:
    never = [str(never) for never in NEVER_REACHED if lies_in(never, network)]
    return {"ipBlock": {"cidr": str(network), **({"except": never} if never else {})}}


def _labelled(name: str, value: str) -> Manifest:
    return {"matchLabels": {name: value}}
