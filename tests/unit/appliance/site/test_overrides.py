"""Variables of roles that a site file overrides: which, with which values, and where they come out."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.cli.files import read_site
from appliance.site import inventory
from appliance.site.model import Site
from common.errors import InputError

SITE = """\
name: lab
overrides:
  {overrides}
nodes:
  - {{name: m1, address: 10.0.0.1, roles: [reservoir, master, worker], agent_port: 6001}}
  - {{name: w1, address: 10.0.0.2, roles: [worker], agent_port: 6001, overrides: {{{node}}}}}
  - {{name: w2, address: 10.0.0.3, roles: [worker], agent_port: 6001}}
"""


def site(tmp_path: Path, overrides: str = "{}", node: str = "") -> Site:
    file = tmp_path / "site.yml"
    file.write_text(SITE.format(overrides=overrides, node=node))
    return read_site(file)


def test_a_node_wins_over_its_roles_and_these_over_the_site(tmp_path: Path) -> None:
    text = "{all: {edge_log: /a, log_store_file_mib: 9}, worker: {edge_log: /b}, master: {edge_log: /c}}"
    hosts = inventory.build(site(tmp_path, text, "edge_log: /d"), version="1")["all"]["hosts"]
    assert [hosts[name]["edge_log"] for name in ("m1", "w1", "w2")] == ["/b", "/d", "/b"]
    assert {hosts[name]["log_store_file_mib"] for name in hosts} == {9}


def test_a_site_without_any_has_the_inventory_that_it_had(tmp_path: Path) -> None:
    plain = site(tmp_path)
    built = inventory.build(plain, version="1")["all"]["hosts"]["m1"]
    assert [name for name in built if not name.startswith(("node_", "ansible_"))] == []


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("edge_worker_conections: 5", "no role has a variable edge_worker_conections.*did you mean edge_worker_con"),
        ("time_zone: Asia/Seoul", "no role has a variable time_zone that can be overridden"),
        ("node_address: 10.0.0.9", "no role has a variable node_address"),
        ("ansible_user: other", "no role has a variable ansible_user"),
        ("edge_worker_connections: many", r"cannot be converted to .*int.*Hint: give a value of type int"),
        ("container_engine_storage_driver: aufs", "one of: overlay2.*Hint: give one of overlay2, btrfs"),
        ("time_packages: {chrony: 1}", "Hint: give a value of type list of str"),
        ('edge_log: "{{ lookup(1) }}"', "is a template. Hint: write the value itself"),
        ('time_packages: ["{% if x %}"]', "is a template"),
        ('container_engine_packages: {bookworm: ["{{ x }}"]}', "is a template"),
    ],
)
def test_what_no_role_takes_is_refused_with_its_line(tmp_path: Path, override: str, said: str) -> None:
    with pytest.raises(InputError, match=rf"(?s)site.yml:3.*{said}"):
        site(tmp_path, f"{{all: {{{override}}}}}")
    with pytest.raises(InputError, match=rf"(?s)site.yml:6.*{said}"):
        site(tmp_path, node=override)


def test_a_group_is_a_role_of_nodes_or_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="overrides"):
        site(tmp_path, "{workers: {edge_log: /a}}")
