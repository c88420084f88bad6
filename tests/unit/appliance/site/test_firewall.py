"""The firewall in the site file: what is accepted, and what each node lets in."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.site import inventory, ways
from appliance.site.model import Site
from appliance.site.site_file import load
from common.errors import InputError
from common.yaml_document import parse

NODES = """\
name: north
nodes:
  - {name: m1, address: 10.0.0.2, roles: [reservoir, master]}
  - {name: w1, address: 10.0.0.3, roles: [worker], agent_port: 6001}
  - {name: w2, address: 10.0.1.4, roles: [worker], agent_port: 6001}
  - {name: s1, address: 10.0.0.5, roles: [storage]}
storage: [{kind: nfs, name: shared, path: /srv/shared, clients: [worker]}]
"""
FIREWALL = "firewall: {enabled: true, networks: [10.0.0.0/24, 10.0.1.0/24]}\n"
BOTH = ["10.0.0.0/23"]
EVERYWHERE: list[str] = []


def site(text: str) -> Site:
    return load(parse(text, "site.yml"))


def opened(text: str, node: str) -> dict[str, list[str]]:
    """The ports that a node opens, as `tcp/443`, and to which networks."""
    host: dict[str, Any] = inventory.build(site(text), version="1")["all"]["hosts"][node]
    assert host["node_firewall"]
    return {f"{each['protocol']}/{each['ports']}": each["networks"] for each in host["node_openings"]}


def test_people_reach_ssh_console_api_apps_and_packages_and_nodes_what_they_need_of_each_other() -> None:
    assert opened(NODES + FIREWALL, "m1") == {
        "tcp/22": EVERYWHERE,
        "tcp/443": EVERYWHERE,
        "tcp/56789": EVERYWHERE,
        "tcp/9443": EVERYWHERE,
        "tcp/8443": EVERYWHERE,
        "tcp/5000": BOTH,
        "tcp/56790": BOTH,
        "udp/123": BOTH,
    }


def test_an_agent_and_the_ports_of_sessions_are_reached_by_the_master_alone() -> None:
    assert opened(NODES + FIREWALL, "w2") == {
        "tcp/22": EVERYWHERE,
        "tcp/6001": ["10.0.0.2/32"],
        "tcp/57000-57999": ["10.0.0.2/32"],
        "udp/4789": BOTH,
    }


def test_a_storage_is_reached_by_its_clients() -> None:
    assert opened(NODES + FIREWALL, "s1") == {"tcp/22": EVERYWHERE, "tcp/2049": ["10.0.0.3/32", "10.0.1.4/32"]}


def test_the_site_opens_what_else_is_on_its_machines() -> None:
    said = [("9100", "10.9.0.0/16"), ("2049", "10.9.0.1"), ("22", "10.9.0.1")]
    allow = ", ".join(f"{{port: {port}, networks: [{network}]}}" for port, network in said)
    found = opened(NODES + FIREWALL.replace("}", f", allow: [{allow}]}}"), "s1")
    assert found["tcp/9100"] == ["10.9.0.0/16"]
    assert found["tcp/2049"] == ["10.0.0.3/32", "10.0.1.4/32", "10.9.0.1/32"]
    assert found["tcp/22"] == EVERYWHERE, "nothing is closed by it"


def test_ssh_is_reached_from_where_the_site_says_and_from_whom_it_allows() -> None:
    said = "ssh_networks: [10.0.0.2, 10.9.0.0/16], allow: [{port: 22, networks: [10.8.0.1]}]"
    found = opened(NODES + FIREWALL.replace("}", f", {said}}}"), "w1")
    assert found["tcp/22"] == ["10.0.0.2/32", "10.8.0.1/32", "10.9.0.0/16"]


def test_calls_by_infiniband_come_from_the_networks_too() -> None:
    text = NODES.replace("address: 10.0.0.3,", "address: 10.0.0.3, ib_address: 10.6.0.3,") + FIREWALL
    with pytest.raises(InputError, match=r"firewall\.networks: w1 has the ib_address 10\.6\.0\.3, which is in none"):
        site(text)
    assert opened(text.replace("networks: [", "networks: [10.6.0.0/24, "), "w2")["udp/4789"] == [*BOTH, "10.6.0.0/24"]


def test_people_reach_the_only_node_of_a_site() -> None:
    alone = "name: north\nnodes: [{name: m1, address: 10.0.0.2, roles: [reservoir, master]}]\n"
    assert opened(alone + FIREWALL, "m1").items() >= {"tcp/443": EVERYWHERE, "tcp/22": EVERYWHERE}.items()


def test_each_way_that_preflight_tries_is_open() -> None:
    text = NODES + FIREWALL
    tried = [(way.target.name, f"{way.protocol}/{way.port}") for way in ways.between(site(text))]
    found = {name: [port.partition("-")[0] for port in opened(text, name)] for name in ("m1", "w1", "w2", "s1")}
    assert len(tried) > 10
    assert [way for way in tried if way[1] not in found[way[0]]] == []


def test_a_machine_of_a_cluster_keeps_the_packet_rules_of_the_cluster_which_fetches_images_from_anywhere() -> None:
    text = NODES.replace("agent_port: 6001}", "agent_port: 6001, kubernetes: {api: 'https://10.0.0.9:6443'}}", 1)
    built = inventory.build(site(text + FIREWALL), version="1")["all"]["hosts"]
    assert [built[name]["node_firewall"] for name in ("m1", "w1", "w2")] == [True, False, True]
    assert opened(text + FIREWALL, "m1")["tcp/5000"] == EVERYWHERE


def test_steps_of_slurm_are_reached_by_its_nodes() -> None:
    slurm = "slurm: {cores: 4, memory_mib: 4096}, gpus: {count: 0}}"
    text = "engine: slurm\n" + NODES.replace("agent_port: 6001}", f"agent_port: 6001, {slurm}")
    assert opened(text + FIREWALL, "w1")["tcp/32768-60999"] == BOTH
    assert opened(text + FIREWALL, "m1")["tcp/6819"] == BOTH


def test_a_site_without_a_firewall_has_none() -> None:
    host = inventory.build(site(NODES), version="1")["all"]["hosts"]["m1"]
    assert (host["node_firewall"], host["node_openings"]) == (False, [])


@pytest.mark.parametrize(
    ("written", "where", "why"),
    [
        ("{enabled: true}", "firewall", "nobody tells from where nodes call each other"),
        ("{enabled: true, networks: [10.0.0.0/24]}", "firewall.networks", "w2 has the address 10.0.1.4"),
        (
            "{enabled: true, networks: [10.0.0.0/23], ssh_networks: [10.9.0.0/16]}",
            "firewall.ssh_networks",
            "deploys come from m1 (10.0.0.2)",
        ),
        ("{networks: [10.0.0.7/24]}", "firewall.networks[0]", "10.0.0.7/24 has host bits set"),
        ("{allow: [{port: 9100}]}", "firewall.allow[0].networks", "required"),
        ("{allow: [{port: 0, networks: [10.0.0.0/8]}]}", "firewall.allow[0].port", "is less than 1"),
        ("{open: true}", "firewall.open", "unknown"),
    ],
)
def test_what_does_not_fit_is_named(written: str, where: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        site(NODES + f"firewall: {written}\n")
    said = str(refused.value.problems[0])
    assert f"{where}: " in said
    assert why in said
