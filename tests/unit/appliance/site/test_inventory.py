"""From site to inventory."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from api.settings import Settings
from appliance.site import groups, inventory
from appliance.site.inventory import NAMED_FILES
from appliance.site.model import Site
from common.settings.package_index import PackageIndexSettings

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
    assert set(build()["children"]) == groups.NAMES - set(groups.OF_ANSIBLE)


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


def test_files_of_the_master_that_the_site_names_are_in_its_backups() -> None:
    named = {"alerts": {"webhook": "https://hook.example/", "webhook_ca": "/etc/ssl/hook.pem"}}
    assert build()["vars"]["site_named_files"] == []
    assert build(**named)["vars"]["site_named_files"] == ["/etc/ssl/hook.pem"]


def test_every_setting_that_names_a_file_of_the_master_is_known() -> None:
    paths = {
        name for name, field in Settings.model_fields.items() if "'^/'" in repr((field.metadata, field.annotation))
    }
    folders = {"host_paths", "pvc_root", "storages"}
    assert paths - folders == set(NAMED_FILES)


def test_services_are_named_beside_their_nodes() -> None:
    variables = build()["vars"]
    assert variables["site_nodes"][0] == {
        "name": "master1",
        "address": "10.71.8.10",
        "aliases": ["penstock", "reservoir"],
    }
    assert variables["site_version"] == "1.2.3"
    assert variables["site_control_api"]["pvc_root"] == "/srv/shared"
    assert variables["site_control_api"]["storages"] == {"shared": "/srv/shared"}
    assert variables["site_control_api"]["pvc_storage"] == "shared"


def test_gpus_and_ports_reach_the_agents_of_workers_alone() -> None:
    hosts = build()["hosts"]
    assert hosts["worker1"]["node_settings"] == {
        "storages": {"shared": "/srv/shared"},
        "name": "worker1",
        "address": "10.71.8.11",
        "port": 6001,
        "api_url": "https://master1:56790",
        "allowed": ["master1"],
        "mount_roots": ["/srv/shared"],
        "registries": ["reservoir:5000"],
        "egress": ["10.71.8.10:443", "10.71.8.10:56789", "10.71.8.10:9443", "10.71.8.10:8443"],
        "package_index": "https://reservoir:8443/pypi/simple/",
        "pids_limit": 8192,
        "simulated_gpus": 4,
        "simulated_gpu_model": "Simulated GPU",
        "simulated_gpu_memory_mib": 16384,
        **{f"gpu_{name}": EXAMPLE["gpu"][name] for name in ("compute", "period_ms", "slack_mib")},
        "enforcement": EXAMPLE["gpu"]["enforcement"],
    }
    assert "node_settings" not in hosts["storage1"]


def test_api_and_agents_have_one_list_of_registries_with_the_sites_own_at_its_head() -> None:
    ports = {**EXAMPLE["ports"], "registry": 5002}
    built = build(ports=ports, images={"registries": ["registry.example.org", "other:5000", "reservoir:5002"]})
    listed = ["reservoir:5002", "registry.example.org", "other:5000"]
    assert built["vars"]["site_control_api"]["registries"] == listed
    assert built["hosts"]["worker1"]["node_settings"]["registries"] == listed


def test_sessions_reach_the_services_at_their_ports_and_what_the_site_opens() -> None:
    nodes = deepcopy(EXAMPLE["nodes"])
    nodes[1]["ib_address"] = "10.72.0.11"
    ports = {**EXAMPLE["ports"], "console": 8444, "apps": 9444}
    opened = ["10.9.0.0/16:8000-8100", "10.71.8.13:27000"]
    built = build(nodes=nodes, ports=ports, sessions={"egress": opened})
    settings = built["hosts"]["worker2"]["node_settings"]
    services = [f"10.71.8.10:{port}" for port in (8444, 56789, 9444, 8443)]
    assert settings["egress"] == services + opened
    assert built["vars"]["site_fabric_addresses"] == ["10.72.0.11"]


def test_a_worker_that_joins_changes_no_setting_of_a_service_elsewhere() -> None:
    """Settings are read at the start of a service, so a change of them is a restart."""
    before, after = (
        build(),
        build(nodes=[*EXAMPLE["nodes"], {**EXAMPLE["nodes"][2], "name": "w3", "address": "10.71.8.14"}]),
    )
    for name, host in before["hosts"].items():
        assert host.get("node_settings") == after["hosts"][name].get("node_settings")
    for name in ("site_control_api", "site_edge", "site_package_index"):
        assert before["vars"][name] == after["vars"][name]


def test_what_is_tried_from_inside_a_container_of_a_worker() -> None:
    hosts = build(sessions={"egress": ["10.71.8.10:5432"]})["hosts"]
    services = ["10.71.8.10:443", "10.71.8.10:56789", "10.71.8.10:9443", "10.71.8.10:8443"]
    closed = [f"10.71.8.{host}:22" for host in (10, 11, 12, 13)]
    closed += ["10.71.8.11:6001", "10.71.8.12:6001", "10.71.8.13:2049", "10.71.8.10:5000"]
    assert hosts["worker1"]["node_ways"] == services + closed, "5432 was opened"
    assert hosts["worker1"]["node_own_port"] == 6001
    assert "node_ways" not in hosts["storage1"]


def test_a_folder_that_nobody_mounts_has_no_clients() -> None:
    assert build()["hosts"]["storage1"]["node_exports"] == [{"path": "/srv/archive", "clients": []}]


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
    built = build(nodes=nodes, storage=[], session_storage=None, session_host_paths=["/mnt"])
    worker = built["hosts"]["w1"]["node_settings"]
    assert (worker["region"], worker["switch"], worker["mount_roots"]) == ("hall-2", "leaf7", ["/mnt"])
    api = built["vars"]["site_control_api"]
    assert (api["host_paths"], api["apps_url"]) == (["/mnt"], "https://10.0.0.2:9443")


def test_a_worker_goes_by_the_order_of_the_site_or_by_its_own() -> None:
    nodes = deepcopy(EXAMPLE["nodes"])
    nodes[2]["enforcement"] = ["mps", "none"]
    built = build(nodes=nodes, gpu={"enforcement": ["driver", "shim"], "compute": "fair", "period_ms": 100})
    first, second = (built["hosts"][name]["node_settings"] for name in ("worker1", "worker2"))
    assert first["enforcement"] == ["driver", "shim"]
    assert second["enforcement"] == ["mps", "none"]
    for settings in (first, second):
        assert (settings["gpu_compute"], settings["gpu_period_ms"]) == ("fair", 100)


def test_what_a_site_does_not_say_is_left_to_the_services() -> None:
    nodes = [
        {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
        {"name": "w1", "address": "10.0.0.3", "roles": ["worker"], "agent_port": 6001},
    ]
    built = build(nodes=nodes, storage=[], session_storage=None, gpu={}, control_api={}, node_agent={})
    assert set(built["vars"]["site_control_api"]) == {"apps_url", "host_paths", "registries"}
    computed = {"name", "address", "port", "api_url", "allowed", "mount_roots", "registries"}
    computed |= {"egress", "package_index"}
    assert set(built["hosts"]["w1"]["node_settings"]) == computed
    # nobody but the role tells the server of uploads
    assert built["vars"]["site_package_index"] == PackageIndexSettings().model_dump()


def test_what_a_site_says_of_its_services_reaches_them() -> None:
    built = build(
        gpu={"fgpu_per_gpu": 4, "plugins": ["penstock-acme==2.1"], "accelerators": ["acme"]},
        control_api={"metrics_keep_s": 3600, "gang_networks": "10.9.0.0/16", "ldap_ca": None},
        node_agent={"pids_limit": 100, "port_range": "40000-40010"},
        package_index={"upload_limit_mib": 20},
    )
    api, agent = built["vars"]["site_control_api"], built["hosts"]["worker2"]["node_settings"]
    assert (api["fgpu_per_gpu"], api["metrics_keep_s"], api["gang_networks"]) == (4, 3600, "10.9.0.0/16")
    assert not {"ldap_ca", "steps_per_fgpu", "plugins", "enforcement"} & set(api)
    assert (agent["pids_limit"], agent["port_range"], agent["accelerators"]) == (100, [40000, 40010], ["acme"])
    assert not {"fgpu_per_gpu", "plugins"} & set(agent)
    assert built["vars"]["site_gpu_plugins"] == ["penstock-acme==2.1"]
    assert built["vars"]["site_package_index"] == {"upload_limit_mib": 20, "account_quota_mib": 20480}


def test_nfs_is_exported_by_its_node_and_mounted_by_its_clients() -> None:
    nfs = {"kind": "nfs", "name": "home", "path": "/srv/home", "mount_path": "/mnt/home", "clients": ["worker"]}
    built = build(storage=[nfs], session_storage=None)
    assert built["hosts"]["storage1"]["node_exports"] == [
        {"path": "/srv/home", "clients": ["10.71.8.11", "10.71.8.12"]}
    ]
    assert built["hosts"]["worker1"]["node_mounts"] == [
        {"source": "storage1:/srv/home", "path": "/mnt/home"},
    ]
    assert built["hosts"]["master1"]["node_mounts"] == []
    assert built["vars"]["site_control_api"]["storages"] == {"home": "/mnt/home"}
    assert built["hosts"]["worker1"]["node_storages"] == [{"name": "home", "path": "/mnt/home", "mounted": True}]
    assert built["hosts"]["storage1"]["node_storages"] == [{"name": "home", "path": "/srv/home", "mounted": False}]
    assert built["hosts"]["worker1"]["node_settings"]["storages"] == {"home": "/mnt/home"}
    assert members(built, "storage_marker") == ["worker1", "worker2", "storage1"]
    assert members(built, "storage_client") == ["worker1", "worker2"]


def test_no_storage_means_no_storage_clients() -> None:
    built = build(storage=[], session_storage=None)
    assert members(built, "storage_client") == []
    assert "pvc_root" not in built["vars"]["site_control_api"]


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


def test_an_agent_knows_the_infiniband_of_its_node_and_which_hcas_sessions_use() -> None:
    nodes = deepcopy(EXAMPLE["nodes"])
    nodes[1] |= {"ib_address": "10.72.0.11", "hcas": ["mlx5_0", "mlx5_1:1"]}
    hosts = build(nodes=nodes)["hosts"]
    settings = hosts["worker1"]["node_settings"]
    assert (settings["ib_address"], settings["hcas"]) == ("10.72.0.11", ["mlx5_0", "mlx5_1:1"])
    assert not {"ib_address", "hcas"} & hosts["worker2"]["node_settings"].keys()


def test_who_stands_for_a_cluster_removes_volumes_where_it_mounts_the_site_s_storage() -> None:
    nfs = {"kind": "nfs", "name": "home", "path": "/srv/home", "mount_path": "/mnt/home", "clients": ["worker"]}
    nodes = deepcopy(EXAMPLE["nodes"])
    nodes[1]["kubernetes"] = {"api": "https://10.0.0.50:6443"}
    nodes[1].pop("simulated_gpus", None)
    built = build(storage=[nfs], session_storage="home", nodes=nodes)
    assert built["hosts"]["worker1"]["node_settings"]["mount_roots"] == ["/mnt/home"]


def test_a_worker_may_stand_for_a_cluster() -> None:
    nodes = [
        {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
        {
            "name": "k8s1",
            "address": "10.0.0.3",
            "roles": ["worker"],
            "agent_port": 6001,
            "kubernetes": {
                "api": "https://10.0.0.50:6443",
                "claims": {"/srv/shared": "volumes"},
                "tolerations": [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}],
                "pod_template": {"spec": {"priorityClassName": "batch"}},
                "egress": ["10.9.0.0/16"],
            },
        },
        {"name": "w1", "address": "10.0.0.4", "roles": ["worker"], "agent_port": 6001},
    ]
    hosts = build(nodes=nodes)["hosts"]
    cluster, machine = hosts["k8s1"]["node_settings"], hosts["w1"]["node_settings"]
    assert cluster["kubernetes_api"] == "https://10.0.0.50:6443"
    assert cluster["kubernetes_claims"] == {"/srv/shared": "volumes"}
    assert cluster["kubernetes_tolerations"] == [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}]
    assert cluster["kubernetes_pod_template"] == {"spec": {"priorityClassName": "batch"}}
    assert cluster["mount_roots"] == []
    assert "egress" not in cluster, "the cluster keeps it, not the agent"
    assert not any(name.startswith("kubernetes") for name in machine)
    assert machine["mount_roots"] == ["/srv/shared"]


def test_orders_of_repairs_are_taken_where_the_site_says_so() -> None:
    before, after = build()["vars"], build(repair={"controller": True})["vars"]
    assert (before["site_takes_orders"], "controller" in before["site_control_api"]) == (False, False)
    assert (after["site_takes_orders"], after["site_control_api"]["controller"]) == (True, True)


def test_the_api_orders_repairs_by_itself_where_the_site_says_so() -> None:
    api = build(repair={"controller": True, "automatic": ["engine"], "max_unhealthy_percentage": 10})["vars"]
    said = {name: value for name, value in api["site_control_api"].items() if name.startswith("repair")}
    assert said == {"repair_automatic": ["engine"], "repair_max_unhealthy_percentage": 10}


@pytest.mark.parametrize(
    ("repair", "reason"),
    [
        ({"controller": True, "automatic": ["disk"]}, "'disk' is no check with a repair; choose of agent, database"),
        ({"automatic": ["engine"]}, "which nobody takes"),
    ],
)
def test_automatic_repairs_are_of_checks_that_have_one_and_need_a_controller(
    repair: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        build(repair=repair)
