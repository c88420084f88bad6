"""What a cluster's administrator applies: rights, profile and network of sessions."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from appliance.site.kubernetes_manifests import manifests
from common.errors import InputError
from tests.kubernetes_site import site


def found(kind: str, *egress: str, **cluster: Any) -> dict[str, Any]:
    [item] = [item for item in manifests(site(*egress, **cluster), "k8s1") if item["kind"] == kind]
    return item


def calls(kind: str) -> set[tuple[str, str]]:
    """Return what a role allows: verbs and kinds."""
    rules = found(kind, namespace="gpu")["rules"]
    return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}


def reached(policy: dict[str, Any], address: str, port: int) -> bool:
    """Return whether sessions may connect to a port of an address."""
    return any(
        any(_holds(peer.get("ipBlock"), address) for peer in rule["to"])
        and any(
            item["port"] <= port <= item.get("endPort", item["port"]) for item in rule.get("ports", [{"port": port}])
        )
        for rule in policy["spec"]["egress"]
    )


def _ports(item: dict[str, Any]) -> range:
    return range(item["port"], item.get("endPort", item["port"]) + 1)


def _holds(block: dict[str, Any] | None, address: str) -> bool:
    networks = [] if block is None else [block["cidr"]]
    left_out = [] if block is None else block.get("except", [])
    at = ip_address(address)
    return any(at in ip_network(item) for item in networks) and not any(at in ip_network(item) for item in left_out)


def test_the_namespace_enforces_the_profile_of_the_pods() -> None:
    for profile in ("restricted", "baseline"):
        labels = found("Namespace", pod_security=profile)["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == profile


def test_the_account_may_do_what_the_agent_does_and_nothing_else() -> None:
    assert calls("ClusterRole") == {(verb, kind) for verb in ("list", "watch") for kind in ("nodes", "pods")}
    assert calls("Role") == {
        *((verb, "pods") for verb in ("get", "create", "delete")),
        ("get", "pods/log"),
        *((verb, "pods/exec") for verb in ("create", "get")),
    }
    assert found("Role", namespace="gpu")["metadata"]["namespace"] == "gpu"
    binding = found("ClusterRoleBinding", namespace="gpu")
    assert binding["roleRef"]["name"] == found("ClusterRole", namespace="gpu")["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "penstock-agent", "namespace": "gpu"}]


def test_two_clusters_in_one_do_not_take_each_others_rights() -> None:
    names = {found("ClusterRole", namespace=namespace)["metadata"]["name"] for namespace in ("a", "b")}
    assert len(names) == 2


def test_sessions_are_reached_by_the_agent_alone() -> None:
    """So not by each other, nor by anybody else in the cluster; their apps go through the agent."""
    spec = found("NetworkPolicy")["spec"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress", "Egress"])
    assert spec["ingress"] == [{"from": [{"ipBlock": {"cidr": "10.0.0.3/32"}}]}]


def test_sessions_reach_the_sites_services_and_no_metadata() -> None:
    policy = found("NetworkPolicy")
    assert reached(policy, "10.0.0.2", 443)
    assert reached(policy, "10.0.0.2", 8443)
    for address, port in (("169.254.169.254", 80), ("10.0.0.2", 22), ("10.0.0.2", 5000), ("10.1.0.7", 8888)):
        assert not reached(policy, address, port)


def test_what_the_site_opens_to_all_sessions_is_open_on_a_cluster_too() -> None:
    policy = found("NetworkPolicy", "10.5.0.0/16:8000-8010", "10.6.0.1")
    assert reached(policy, "10.5.7.7", 8005)
    assert not reached(policy, "10.5.7.7", 8011)
    assert reached(policy, "10.6.0.1", 1)


def test_what_the_site_opens_has_no_metadata_service_in_it() -> None:
    policy = found("NetworkPolicy", egress=["0.0.0.0/0", "::/0"])
    assert reached(policy, "192.0.2.7", 443)
    assert reached(policy, "2001:db8::1", 443)
    for address in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fe80::1", "fd00:ec2::254"):
        assert not reached(policy, address, 80)


def test_names_are_resolved_by_the_cluster() -> None:
    dns = found("NetworkPolicy")["spec"]["egress"][0]
    assert dns["to"][0]["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
    assert {(item["protocol"], item["port"]) for item in dns["ports"]} == {("UDP", 53), ("TCP", 53)}


@pytest.mark.parametrize("name", ["m1", "nothing"])
def test_a_node_that_is_no_cluster_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} stands for no Kubernetes cluster. Hint: name one that does: k8s1"):
        manifests(site(), name)
