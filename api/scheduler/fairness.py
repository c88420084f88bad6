"""Fair shares: the guaranteed quota of each project, and its part of what the others leave idle; milli-GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from api.scheduler.snapshot import ProjectState

EXACT = 64
"""Bits behind the point that keep fractions of milli-GPU and weights apart, whatever their size in a cluster."""


@dataclass(slots=True)
class ProjectDemand:
    """A project, and what it holds and asks for together; all its workloads take whole multiples of `unit_milli`.

    It gets what is `guaranteed` in any case, and would take so much `beyond`, in whole workloads below its cap.
    """

    project: ProjectState
    demand_milli: int
    held_milli: int = 0
    unit_milli: int = 1
    guaranteed: int = field(init=False)
    beyond: int = field(init=False)

    def __post_init__(self) -> None:
        """Tell both apart once: many projects ask for them, several times in a decision."""
        whole = self.project.cap_milli // self.unit_milli * self.unit_milli
        self.guaranteed = max(0, min(self.project.quota_milli, self.demand_milli))
        self.beyond = max(0, min(self.demand_milli, whole) - self.guaranteed)

    @property
    def weight(self) -> int:
        """Its weight where what is spare is divided; 0 is no part of it."""
        return self.project.weight_milli


def fair_shares(
    capacity_milli: int, demands: Iterable[ProjectDemand], weights: Mapping[str, int] | None = None
) -> Mapping[str, int]:
    """Return the fair share of each project: never less than its guarantee, and never more than its demand.

    What is spare goes to those who want it in the ratio of their weights. Projects without a part get what is still
    left then, in equal parts. `weights` take the place of their own.
    """
    known = weights or {}
    ordered = sorted(demands, key=lambda demand: (-demand.held_milli, demand.project.name))
    shares = {demand.project.name: demand.guaranteed for demand in ordered}
    spare = max(0, capacity_milli - sum(shares.values()))
    weighted = {demand.project.name: _asked(demand, known) for demand in ordered if demand.weight}
    rest = {demand.project.name: _asked(demand, known) for demand in ordered if not demand.weight}
    for wants in (weighted, rest):
        for name, milli in divide(spare, wants).items():
            shares[name] += milli
            spare -= milli
    return shares


def by_what_they_had(demands: Sequence[ProjectDemand]) -> Mapping[str, int]:
    """Return weights by what projects had lately; empty where none had anything.

    Of those that want more, each has its part of the weights and had a part of what all had. By what the second is
    below the first the weight becomes more, by what it is above less: twice its part had, and hardly any is left.
    """
    found: dict[str, int] = {}
    wanting = [demand for demand in demands if demand.beyond] if any_had(demands) else []
    for group in ([each for each in wanting if each.weight], [each for each in wanting if not each.weight]):
        weight, had = sum(each.weight or 1 for each in group), sum(each.project.had_milli for each in group)
        for each in group if had else ():
            changed = 2 * (each.weight or 1) * had - each.project.had_milli * weight
            found[each.project.name] = max(1, changed)
    return found


def any_had(demands: Iterable[ProjectDemand]) -> bool:
    """Return whether what projects had lately tells any apart."""
    return any(each.project.had_milli for each in demands)


def _asked(demand: ProjectDemand, weights: Mapping[str, int]) -> tuple[int, int]:
    """Return what a project wants beyond its guarantee, and its weight there."""
    return demand.beyond, weights.get(demand.project.name) or demand.weight or 1


def in_whole_workloads(exact: Mapping[str, int], demands: Iterable[ProjectDemand]) -> Mapping[str, int]:
    """Return fair shares rounded to what the projects' workloads can take, as far as they go beyond the guarantee.

    What no workload of its project can take goes to those who lack the least for one more (the largest remainder), of
    equal ones to who holds the most: nobody is stopped for a remainder. Who has no part of what is spare comes last.
    """
    shares = dict(exact)
    hungry = {
        demand.project.name: demand
        for demand in demands
        if shares[demand.project.name] < demand.guaranteed + demand.beyond
    }
    rest = {name: shares[name] % demand.unit_milli for name, demand in hungry.items()}
    order = {
        name: (not demand.weight, -Fraction(rest[name], demand.unit_milli), -demand.held_milli, name)
        for name, demand in hungry.items()
    }
    nearest = deque(sorted(hungry, key=order.__getitem__))
    spare = {name: min(rest[name], shares[name] - hungry[name].guaranteed) for name in nearest}
    left = sum(spare.values())
    while nearest:
        name = nearest.popleft()
        left -= spare[name]
        lacking = hungry[name].unit_milli - rest[name]
        if not rest[name] or left < lacking:
            continue
        shares[name] += lacking
        left -= lacking
        while lacking:
            giver = nearest[-1]
            given = min(lacking, spare[giver])
            for amounts in (shares, spare, rest):
                amounts[giver] -= given
            lacking -= given
            if not spare[giver]:
                nearest.pop()
    return shares


def divide(amount: int, wants: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Divide an amount among names that want so much of it, each with a weight; all of it, as far as it is wanted.

    Who wants less than its part leaves the rest to the others. What whole numbers leave over goes, one by one, to the
    largest remainders, of equal ones in the order of the names given.
    """
    place = {name: at for at, name in enumerate(wants)}
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
    by_remainder = sorted(parts, key=lambda name: (-parts[name][1], place[name]))
    for at, name in enumerate(by_remainder):
        given[name] = parts[name][0] + (1 if at < left else 0)
    return given
