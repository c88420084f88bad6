"""Balance of what containers on a GPU owe and what is owed to them, where all of its time is given away. Pure; in ns.

In strict mode what somebody is owed comes from windows that nobody has. In fair mode there are none: what is owed can
only come from those who owe it, and what is owed to nobody need not be paid. But containers begin and end to work, and
their windows come and go with that; so either side may be left over. What is owed and cannot be had would circulate:
all launch at any time, take from each other, and are owed as much again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.gpu.layout import Total

MOST_NS = 10_000_000_000
"""So much is remembered at most, whatever an account says."""
PARTS = 24
"""Of what is left over, one of so many parts is forgotten with each look: what is on its way meanwhile is no matter."""


@dataclass(frozen=True)
class Claim:
    """What a container owes, and what is owed to it."""

    debt_ns: int = 0
    owed_ns: int = 0


def claim(total: Total, lost_ns: int, forgotten_ns: int, now_ns: int) -> Claim:
    """Return what a container owes and is owed once it has taken what stands in its limits.

    A part of a window that it leaves to pay is owed until that has passed.
    """
    debt, owed, lost, forgotten = (
        max(total.debt_ns, 0),
        total.owed_ns,
        lost_ns - total.settled_ns,
        forgotten_ns - total.forgotten_ns,
    )
    if lost > 0:
        debt, owed = max(debt - lost, 0), owed + max(lost - debt, 0)
    else:
        debt, owed = debt + max(-lost - owed, 0), max(owed + lost, 0)
    debt, owed = max(debt + min(forgotten, 0), 0), max(owed - max(forgotten, 0), 0)
    return Claim(min(debt + max(total.opens_ns - now_ns, 0), MOST_NS), min(owed, MOST_NS))


def forgotten(claims: Mapping[str, Claim]) -> dict[str, int]:
    """Return the ns that each of those who have work forgets now: of what is owed to it, or below zero of its debt."""
    debts, owed = sum(each.debt_ns for each in claims.values()), sum(each.owed_ns for each in claims.values())
    most = abs(owed - debts) // PARTS
    if owed > debts:
        found = {name: most * each.owed_ns // owed for name, each in claims.items()}
    else:
        found = {name: -(most * each.debt_ns // max(debts, 1)) for name, each in claims.items()}
    return {name: ns for name, ns in found.items() if ns}
