"""Packets of sessions against the interfaces of workers."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.site import packets
from appliance.site.model import Site

NODES: list[dict[str, Any]] = [
    {"name": "first", "address": "10.0.0.1", "roles": ["reservoir", "master"]},
    {"name": "second", "address": "10.0.0.2", "roles": ["worker"], "agent_port": 6001},
    {"name": "third", "address": "10.0.0.3", "roles": ["worker"], "agent_port": 6001},
]


def found(wanted: int | None, **sizes: int) -> dict[str, tuple[str, str]]:
    """State and evidence of each worker, by the sizes that their interfaces carry."""
    settings = {"network_mtu": wanted} if wanted else {}
    site = Site.model_validate({"name": "north", "nodes": NODES, "node_agent": settings})
    machines = {name: {"carrier": "eth0", "mtu": size} for name, size in sizes.items()}
    judged = packets.judge(site, machines)
    assert all(len(checks) == 1 and bool(checks[0].hint) == (checks[0].state != "ok") for checks in judged.values())
    return {name: (str(check.state), check.evidence) for name, (check,) in judged.items()}


@pytest.mark.parametrize(("wanted", "size"), [(None, 1500), (1450, 1500), (None, 9000), (8950, 9000), (1400, 1450)])
def test_what_fits_is_well(wanted: int | None, size: int) -> None:
    well = ("ok", f"eth0 carries {size} bytes")
    assert found(wanted, first=100, second=size, third=size) == {"second": well, "third": well}


def test_a_wish_above_what_the_interfaces_carry_is_a_warning() -> None:
    state, said = found(9000, second=9000, third=9000)["second"]
    assert (state, said) == ("warn", "eth0 carries 9000 bytes; `network_mtu` is 9000, of which VXLAN takes 50")
    assert found(9000, second=9000)["second"][0] == "ok", "one worker has no VXLAN"
    assert found(9001, second=9000)["second"][0] == "warn"


def test_an_interface_below_what_containers_send_is_a_warning() -> None:
    state, said = found(None, second=1450, third=1450)["third"]
    assert (state, said) == ("warn", "eth0 carries 1450 bytes; containers send 1500 where nobody says otherwise")


def test_workers_have_one_size() -> None:
    judged = found(None, second=9000, third=1500)
    assert judged["second"][0] == "ok"
    assert judged["third"] == (
        "warn",
        "eth0 carries 1500 bytes; second sends up to 9000, which are lost on their way here",
    )


def test_what_nobody_knows_is_not_judged() -> None:
    assert found(9000, second=0) == {}
