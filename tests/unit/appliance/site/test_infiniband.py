"""InfiniBand in the site file: what is accepted, what does not fit together, and what the role gets of it."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.site import inventory
from appliance.site.model import Site
from appliance.site.site_file import load
from common.errors import InputError
from common.yaml_document import parse

SITE = """\
name: north
nodes:
  - {{name: m1, address: 10.0.0.2, roles: [reservoir, master]}}
  - {{name: w1, address: 10.0.0.3, roles: [worker], agent_port: 6001, {first}}}
  - {{name: w2, address: 10.0.0.4, roles: [worker], agent_port: 6001, {second}}}
"""
SECOND = "ib_address: 10.1.0.4"


def site(first: str, second: str = SECOND) -> Site:
    return load(parse(SITE.format(first=first, second=second), "site.yml"))


def built(first: str, second: str = SECOND) -> dict[str, Any]:
    found: dict[str, Any] = inventory.build(site(first, second), version="1")["all"]
    return found


def test_the_site_sets_up_the_infiniband_of_those_nodes_that_say_so() -> None:
    found = built("ib_address: 10.1.0.3, infiniband: {subnet_manager: true}")
    assert list(found["children"]["infiniband"]["hosts"]) == ["w1"]
    assert list(found["children"]["fabric"]["hosts"]) == ["w1", "w2"]
    assert found["hosts"]["w1"]["node_infiniband"] == {
        "interface": "ib0",
        "prefix": 24,
        "mode": "datagram",
        "mtu": 2044,
        "subnet_manager": True,
    }
    assert "node_infiniband" not in found["hosts"]["w2"]


@pytest.mark.parametrize(("said", "mtu"), [("mode: connected", 65520), ("mtu: 4092", 4092), ("mtu: 1500", 1500)])
def test_packets_are_as_large_as_said_or_as_the_mode_carries_everywhere(said: str, mtu: int) -> None:
    found = built(f"ib_address: 10.1.0.3, infiniband: {{{said}}}")
    assert found["hosts"]["w1"]["node_infiniband"]["mtu"] == mtu


@pytest.mark.parametrize(
    ("first", "second", "where", "reason"),
    [
        ("infiniband: {}", SECOND, "nodes[1].infiniband", "w1 has no ib_address that its interface could bear"),
        ("{ib}, infiniband: {interface: ib/0}", SECOND, "nodes[1].infiniband.interface", "does not match"),
        ("{ib}, infiniband: {mtu: 65520}", SECOND, "nodes[1].infiniband.mtu", "packets of 4092 bytes at most"),
        ("{ib}, infiniband: {mode: connected, mtu: 65521}", SECOND, "nodes[1].infiniband.mtu", "65520 bytes at most"),
        ("{ib}, infiniband: {prefix: 30}", SECOND, "nodes[1].infiniband.prefix", "is no address of a node in"),
        ("{ib}, infiniband: {prefix: 8}", SECOND, "nodes[1].infiniband.prefix", "10.0.0.2 of m1, too"),
        (
            "{ib}, infiniband: {}",
            "ib_address: 10.2.0.4, infiniband: {}",
            "nodes[2].infiniband.prefix",
            "10.2.0.0/24 is another network than 10.1.0.0/24 of w1",
        ),
        (
            "{ib}, infiniband: {}",
            f"{SECOND}, infiniband: {{mode: connected}}",
            "nodes[2].infiniband.mtu",
            "packets of 65520 bytes do not reach w1, which takes 2044",
        ),
        (
            "{ib}, kubernetes: {api: 'https://10.0.0.50:6443'}, infiniband: {}",
            SECOND,
            "nodes[1].infiniband",
            "stands for a cluster",
        ),
    ],
)
def test_what_does_not_fit_together_is_named(first: str, second: str, where: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        site(first.replace("{ib}", "ib_address: 10.1.0.3"), second)
    (problem,) = caught.value.problems
    assert problem.where.endswith(where)
    assert reason in problem.reason
    assert problem.hint
