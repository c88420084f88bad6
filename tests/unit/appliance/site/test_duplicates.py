"""Machines that are copies of each other, and addresses that somebody else has, too."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.site import duplicates


def machine(number: int, **changes: Any) -> dict[str, Any]:
    own = {"hostname": f"node{number}", "machine_id": f"{number:032x}", "mac": f"02:00:00:00:00:0{number}"}
    return own | {"claimants": []} | changes


def told(*machines: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """State and evidence of all checks, by the names of nodes."""
    found = duplicates.judge({f"n{number}": each for number, each in enumerate(machines, 1)})
    assert all(bool(check.hint) == (check.state != "ok") for checks in found.values() for check in checks)
    return {name: [(str(check.state), check.evidence) for check in checks] for name, checks in found.items()}


def test_machines_of_their_own_are_well() -> None:
    assert [checks[0][0] for checks in told(machine(1), machine(2)).values()] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("hostname", "debian", "the host name debian is that of"),
        ("machine_id", "3d12", "the machine id 3d12 is that of"),
        ("mac", "02:42:ac:11:00:02", "the hardware address 02:42:ac:11:00:02 is that of"),
    ],
)
def test_what_copies_have_in_common_is_told_of_each(key: str, value: str, said: str) -> None:
    copies = told(machine(1, **{key: value}), machine(2, **{key: value}), machine(3))
    assert copies["n1"] == [("warn", f"{said} n2, too")]
    assert copies["n2"] == [("warn", f"{said} n1, too")]
    assert copies["n3"][0][0] == "ok"


def test_what_is_not_known_is_no_duplicate() -> None:
    assert {checks[0][0] for checks in told(machine(1, mac=""), machine(2, mac="")).values()} == {"ok"}


def test_an_address_that_another_machine_has_makes_a_node_unfit() -> None:
    found = told(machine(1, claimants=["7a:b6:c1:19:6a:68"]), machine(2))
    assert found["n1"] == [("fail", "another machine, 7a:b6:c1:19:6a:68, has the same address")]
    assert found["n2"][0][0] == "ok"
