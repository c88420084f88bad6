"""Duplicates among nodes: what each machine has for itself, and copies of machines have in common. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from common.checks import Check, CheckState

Machines = Mapping[str, Mapping[str, Any]]
"""What `roles/preflight/library/node_machine.py` says of nodes, by their names."""

OWN = {
    "hostname": ("host name", "give each its own with `hostnamectl set-hostname NAME`"),
    "machine_id": (
        "machine id",
        "on a copy run `rm /etc/machine-id && systemd-machine-id-setup` and reboot it: journals and DHCP go by the id",
    ),
    "mac": ("hardware address", "give one of the interfaces another one: a switch sends to one of the two only"),
}


NAME = "machine is nobody's copy"
ELSEWHERE = "give one of the two another address: what is sent to this node reaches either"


def judge(machines: Machines) -> dict[str, list[Check]]:
    """Return a check for each node: that nobody else of these has what it has for itself, or who has what."""
    found = {name: list(_addresses(machine)) for name, machine in machines.items()}
    for key, (what, hint) in OWN.items():
        owners = defaultdict(list)
        for name, machine in machines.items():
            owners[machine[key]].append(name)
        for value, names in owners.items():
            for name in names if value and len(names) > 1 else ():
                others = ", ".join(other for other in names if other != name)
                said = f"the {what} {value} is that of {others}, too"
                found[name].append(Check("duplicates", NAME, CheckState.WARN, said, hint))
    well = Check("duplicates", NAME, CheckState.OK, "address, host name, machine id, hardware address")
    return {name: checks or [well] for name, checks in found.items()}


def _addresses(machine: Mapping[str, Any]) -> Iterator[Check]:
    for mac in machine["claimants"]:
        yield Check("duplicates", NAME, CheckState.FAIL, f"another machine, {mac}, has the same address", ELSEWHERE)
