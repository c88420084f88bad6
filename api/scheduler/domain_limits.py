"""Limits of domains: what the projects of one hold together, and what of that they may; milli-GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from api.scheduler.claims import Claims
from api.scheduler.holdings import Holdings
from api.scheduler.shares import sharing
from api.scheduler.snapshot import DomainState, ProjectState, Workload


@dataclass(frozen=True)
class DomainLimits:
    """The domains that share, with those of their projects that are known, during one decision."""

    domains: Mapping[str, DomainState]
    of_project: Mapping[str, str]
    members: Mapping[str, frozenset[str]]
    _holdings: Mapping[str, Holdings]
    _claims: Claims

    @classmethod
    def of(
        cls,
        domains: Mapping[str, DomainState],
        projects: Mapping[str, ProjectState],
        holdings: Mapping[str, Holdings],
        claims: Claims,
    ) -> DomainLimits:
        """Return those of a ledger; they follow what it notes."""
        of_project = sharing(projects.values(), domains)
        members: defaultdict[str, set[str]] = defaultdict(set)
        for project, domain in of_project.items():
            members[domain].add(project)
        return cls(domains, of_project, {name: frozenset(of) for name, of in members.items()}, holdings, claims)

    def retained(self, domain: str, but: Workload | None = None, *, now: bool = False) -> int:
        """Return what its projects will have without one workload, or with what is terminating what they have `now`."""
        running = sum(
            own.held if now else own.retained for name in self.members[domain] if (own := self._holdings.get(name))
        )
        return running + sum(self._claims.nominated(name, but) for name in self.members[domain])

    def beyond(self, workload: Workload, *, now: bool = False) -> int:
        """Return by how much the projects of its domain would go beyond that one's limit with the workload."""
        domain = self.of_project.get(workload.project)
        limit = self.domains[domain].limit_milli if domain else None
        if domain is None or limit is None or not workload.total_milli:
            return 0
        return max(0, self.retained(domain, workload, now=now) + workload.total_milli - limit)
