"""From site to inventory."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from appliance.site import inventory
from appliance.site.model import Site

ROOT = Path(__file__).parents[4]
EXAMPLE: dict[str, Any] = yaml.safe_load((ROOT / "inventory/example/site.yml").read_text())


def build(**changes: object) -> dict[str, Any]:
    built: dict[str, Any] = inventory.build(Site.model_validate({**deepcopy(EXAMPLE), **changes}), version="1.2.3")[
        "all"
    ]
    return built


def members(built: dict[str, Any], group: str) -> list[str]:
    return list(built["children"][group]["hosts"])


def test_groups_follow_from_the_types_of_the_nodes() -> None:
    built = build()
    everyone = ["master1", "worker1", "worker2", "storage1"]
    assert members(built, "package_source") == members(built, "time") == members(built, "pki") == everyone
    assert members(built, "reservoir") == members(built, "edge") == members(built, "database") == ["master1"]
    assert members(built, "node_agent") == members(built, "container_engine") == ["worker1", "worker2"]
    assert members(built, "storage_server") == ["storage1"]
    assert members(built, "storage_client") == ["worker1", "worker2"]
    assert members(built, "fabric") == []


def test_every_group_is_declared_and_nothing_else() -> None:
    declared = yaml.safe_load((ROOT / "inventory/groups.yml").read_text())
    assert set(declared["all"]["children"]) == set(build()["children"])


def test_the_reservoir_node_is_local_and_the_others_are_reached_by_ssh() -> None:
    hosts = build(ssh={"user": "root", "port": 2222, "private_key": "/root/.ssh/lab"})["hosts"]
    assert hosts["master1"]["ansible_connection"] == "local"
    assert "ansible_host" not in hosts["master1"]
    worker = hosts["worker1"]
    assert (worker["ansible_host"], worker["ansible_port"]) == ("10.71.8.11", 2222)
    assert worker["ansible_ssh_private_key_file"] == "/root/.ssh/lab"
    assert worker["ansible_become"] is False
    assert "UserKnownHostsFile=/var/lib/penstock/site/known_hosts" in worker["ansible_ssh_common_args"]


def test_an_ordinary_ssh_user_becomes_root() -> None:
    worker = build(ssh={"user": "operator"})["hosts"]["worker1"]
    assert worker["ansible_become"] is True
    assert "ansible_ssh_private_key_file" not in worker


def test_services_are_named_beside_their_nodes() -> None:
    variables = build()["vars"]
    assert variables["site_nodes"][0] == {
        "name": "master1",
        "address": "10.71.8.10",
        "aliases": ["penstock", "reservoir"],
    }
    assert variables["site_version"] == "1.2.3"
    assert variables["site_volume_root"] == "/srv/shared"


def test_gpus_and_ports_reach_the_agents_of_workers_alone() -> None:
    hosts = build()["hosts"]
    assert hosts["worker1"]["node_agent_listen"] == 6001
    assert hosts["worker1"]["node_simulated_gpus"]["count"] == 4
    assert (hosts["worker1"]["node_region"], hosts["worker1"]["node_switch"]) == ("", "")
    assert not any(key.startswith("node_agent") for key in hosts["storage1"])


def test_where_a_worker_stands_and_what_its_sessions_may_mount() -> None:
    nodes = [
        {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
        {
            "name": "w1",
            "address": "10.0.0.3",
            "roles": ["worker"],
            "agent_port": 6001,
            "region": "hall-2",
            "switch": "leaf7",
        },
    ]
    built = build(nodes=nodes, storage=[], session_storage=None, session_host_mounts=["/mnt"])
    worker = built["hosts"]["w1"]
    assert (worker["node_region"], worker["node_switch"]) == ("hall-2", "leaf7")
    assert (built["vars"]["site_host_mounts"], built["vars"]["site_apps_url"]) == (["/mnt"], "https://10.0.0.2:9443")


def test_a_worker_goes_by_the_order_of_the_site_or_by_its_own() -> None:
    nodes = deepcopy(EXAMPLE["nodes"])
    nodes[2]["enforcement"] = ["mps", "none"]
    built = build(nodes=nodes, gpu={"enforcement": ["driver", "shim"], "compute": "fair", "period_ms": 100})
    assert built["hosts"]["worker1"]["node_enforcement"] == ["driver", "shim"]
    assert built["hosts"]["worker2"]["node_enforcement"] == ["mps", "none"]
    assert "node_enforcement" not in built["hosts"]["storage1"]
    assert built["vars"]["site_gpu"] == {
        "fgpu_per_gpu": 2,
        "steps_per_fgpu": 10,
        "enforcement": ["driver", "shim"],
        "compute": "fair",
        "period_ms": 100,
        "slack_mib": 512,
        "accelerators": ["nvidia"],
        "plugins": [],
    }


def test_nfs_is_exported_by_its_node_and_mounted_by_its_clients() -> None:
    nfs = {"kind": "nfs", "name": "home", "path": "/srv/home", "mount_path": "/mnt/home", "clients": ["worker"]}
    built = build(storage=[nfs], session_storage=None)
    assert built["hosts"]["storage1"]["node_exports"] == ["/srv/home"]
    assert built["hosts"]["worker1"]["node_mounts"] == [
        {"source": "storage1:/srv/home", "path": "/mnt/home"},
    ]
    assert built["hosts"]["master1"]["node_mounts"] == []
    assert members(built, "storage_client") == ["worker1", "worker2"]


def test_no_storage_means_no_storage_clients() -> None:
    built = build(storage=[], session_storage=None)
    assert members(built, "storage_client") == []
    assert built["vars"]["site_volume_root"] == ""


def test_a_storage_node_runs_the_server_that_its_storage_names() -> None:
    nfs = {"kind": "nfs", "name": "one", "path": "/srv/one", "server": "kernel", "clients": []}
    hosts = build(storage=[nfs], session_storage=None)["hosts"]
    assert hosts["storage1"]["node_storage_server"] == "kernel"
    assert "node_storage_server" not in hosts["worker1"]


def test_an_infiniband_address_puts_a_node_into_the_fabric() -> None:
    nodes = deepcopy(EXAMPLE["nodes"])
    nodes[1]["ib_address"] = "10.72.0.11"
    built = build(nodes=nodes)
    assert members(built, "fabric") == ["worker1"]
    assert built["hosts"]["worker1"]["node_ib_address"] == "10.72.0.11"


def test_a_worker_may_stand_for_a_cluster() -> None:
    nodes = [
        {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
        {
            "name": "k8s1",
            "address": "10.0.0.3",
            "roles": ["worker"],
            "agent_port": 6001,
            "kubernetes": {"api": "https://10.0.0.50:6443", "claims": {"/srv/shared": "volumes"}},
        },
        {"name": "w1", "address": "10.0.0.4", "roles": ["worker"], "agent_port": 6001},
    ]
    hosts = build(nodes=nodes)["hosts"]
    assert hosts["k8s1"]["node_kubernetes"] == {
        "api": "https://10.0.0.50:6443",
        "namespace": "penstock",
        "gpu_resource": "nvidia.com/gpu",
        "machines": {},
        "claims": {"/srv/shared": "volumes"},
        "host_folders": [],
        "schedule_s": 10,
    }
    assert hosts["w1"]["node_kubernetes"] == {}
