"""Shares of a decision: those of domains beside projects that stand alone, and inside of a domain its projects' own.

A domain that shares stands for its projects: it wants what they want, up to its limit, and has its quota in any case.
What each had lately changes the weights (`fairness.by_what_they_had`): having had little gives nobody a right to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from api.scheduler.fairness import ProjectDemand, any_had, by_what_they_had, fair_shares, in_whole_workloads
from api.scheduler.snapshot import DomainState, ProjectState


@dataclass(frozen=True)
class Shares:
    """Fair shares in milli-GPU: the `exact` ones of projects and of `domains`, and in whole workloads those `of_now`.

    `fair` is what workloads can take of the exact ones. Where projects are told apart by what they had, `of_now` is the
    same without that: who has no more is not stopped for it, and nobody is for who would have more. Else both are one.
    `guaranteed` is what of their domains' quotas projects have as their part.
    """

    exact: Mapping[str, int] = field(default_factory=dict)
    fair: Mapping[str, int] = field(default_factory=dict)
    of_now: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, int] = field(default_factory=dict)
    guaranteed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, capacity: int, demands: Sequence[ProjectDemand], domains: Mapping[str, DomainState]) -> Shares:
        """Return the shares of a capacity."""
        division = _Division(capacity, demands, domains)
        exact, of_domains = division.exact()
        fair = division.whole(aged=True)
        of_now = division.whole(aged=False) if any_had(demands) else fair
        return cls(exact, fair, of_now, of_domains, division.guaranteed())


class _Division:
    """A capacity that is divided among domains and projects."""

    def __init__(self, capacity: int, demands: Sequence[ProjectDemand], domains: Mapping[str, DomainState]) -> None:
        self._domains = domains
        self._members = {
            name: members
            for name in sorted(domains)
            if (members := [each for each in demands if each.project.domain == name])
        }
        alone = [each for each in demands if each.project.domain not in self._members]
        self._top = [*alone, *(_together(domains[name], members) for name, members in self._members.items())]
        self._aged = _divided(capacity, self._top, aged=True)
        self._of_now = _divided(capacity, self._top, aged=False) if any_had(demands) else self._aged

    def exact(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the exact shares of projects, and of domains."""
        shares = dict(self._aged)
        of_domains = {name: shares.pop(_key(name)) for name in self._members}
        for name, members in self._members.items():
            shares |= _divided(of_domains[name], members, aged=True)
        return shares, of_domains

    def whole(self, *, aged: bool) -> Mapping[str, int]:
        """Return the shares of projects in whole workloads, those of domains rounded first."""
        shares = dict(in_whole_workloads(self._aged if aged else self._of_now, self._top))
        for name, members in self._members.items():
            shares |= in_whole_workloads(_divided(shares.pop(_key(name)), members, aged=aged), members)
        return shares

    def guaranteed(self) -> Mapping[str, int]:
        """Return the parts that projects have of their domains' quotas, as things stand now."""
        shares: dict[str, int] = {}
        for name, members in self._members.items():
            quota = self._domains[name].quota_milli
            shares |= in_whole_workloads(_divided(quota, members, aged=False), members) if quota else {}
        return shares


def _divided(capacity: int, demands: Sequence[ProjectDemand], *, aged: bool) -> Mapping[str, int]:
    return fair_shares(capacity, demands, by_what_they_had(demands) if aged else {})


def _together(domain: DomainState, members: Sequence[ProjectDemand]) -> ProjectDemand:
    """Return a domain as if it were a project: with what is guaranteed to its projects, or its own quota."""
    wanted = sum(each.guaranteed + each.beyond for each in members)
    quota = max(domain.quota_milli, sum(each.guaranteed for each in members))
    unit = gcd(*(each.unit_milli for each in members if each.demand_milli)) or 1
    project = ProjectState(
        _key(domain.name),
        quota,
        weight=domain.weight,
        limit_milli=domain.limit_milli,
        had_milli=sum(each.project.had_milli for each in members),
    )
    return ProjectDemand(project, wanted, sum(each.held_milli for each in members), unit)


def _key(domain: str) -> str:
    """Return a name for the domain that no project has."""
    return f"domain:{domain}"


def sharing(projects: Iterable[ProjectState], domains: Mapping[str, DomainState]) -> dict[str, str]:
    """Return the domain of each project that shares inside of one."""
    return {each.name: each.domain for each in projects if each.domain in domains}
