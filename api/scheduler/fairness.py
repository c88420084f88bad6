"""Fair shares: the guaranteed quota of each project, and its part of what the others leave idle; milli-GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.scheduler.snapshot import ProjectState
from common.gpu.share import MILLI

EXACT = 64
"""Bits behind the point that keep fractions of milli-GPU and weights apart, whatever their size in a cluster."""


@dataclass(frozen=True, slots=True)
class ProjectDemand:
    """A project, and what it holds and asks for together."""

    project: ProjectState
    demand_milli: int

    @property
    def guaranteed(self) -> int:
        """What it gets in any case."""
        return max(0, min(self.project.quota_milli, self.demand_milli))

    @property
    def beyond(self) -> int:
        """What it would take beyond its guarantee."""
        return max(0, self.demand_milli - self.guaranteed) if self.project.over_quota else 0

    @property
    def weight(self) -> int:
        """Its part of what is spare; a weight of 4 is worth as much as a quota of 4 GPUs."""
        return self.project.weight * MILLI or self.project.quota_milli


def fair_shares(capacity_milli: int, demands: Iterable[ProjectDemand]) -> Mapping[str, int]:
    """Return the fair share of each project: never less than its guarantee, and never more than its demand.

    What is spare goes to those who want it in the ratio of their weights. Projects without weight and quota get what is
    still left then, in equal parts.
    """
    ordered = sorted(demands, key=lambda demand: demand.project.name)
    shares = {demand.project.name: demand.guaranteed for demand in ordered}
    spare = max(0, capacity_milli - sum(shares.values()))
    weighted = {demand.project.name: (demand.beyond, demand.weight) for demand in ordered if demand.weight}
    rest = {demand.project.name: (demand.beyond, 1) for demand in ordered if not demand.weight}
    for wants in (weighted, rest):
        for name, milli in divide(spare, wants).items():
            shares[name] += milli
            spare -= milli
    return shares


def divide(amount: int, wants: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Divide an amount among names that want so much of it, each with a weight; all of it, as far as it is wanted.

    Who wants less than its part leaves the rest to the others. What whole numbers leave over goes, one by one, to the
    largest remainders, then by name.
    """
    hungry = sorted(
        ((name, want, weight) for name, (want, weight) in wants.items() if want > 0),
        key=lambda item: ((item[1] << EXACT) // item[2], item[0]),
    )
    given: dict[str, int] = {}
    total = sum(weight for _, _, weight in hungry)
    while hungry and hungry[0][1] * total <= amount * hungry[0][2]:
        name, want, weight = hungry.pop(0)
        given[name] = want
        amount, total = amount - want, total - weight
    parts = {name: divmod(amount * weight, total) for name, _, weight in hungry}
    left = amount - sum(whole for whole, _ in parts.values()) if parts else 0
    by_remainder = sorted(parts, key=lambda name: (-parts[name][1], name))
    for place, name in enumerate(by_remainder):
        given[name] = parts[name][0] + (1 if place < left else 0)
    return given
