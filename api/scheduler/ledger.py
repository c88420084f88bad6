"""Ledger of projects: what each holds, and what it may; milli-GPU. CPU and memory: `beside`.

What a project has `held` counts until the last container is gone; what it will have `retained` counts neither those
that are terminating nor those reclaimed. What is kept for a workload never counts against itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from api.scheduler.beside import Beside
from api.scheduler.claims import Claims
from api.scheduler.domain_limits import DomainLimits
from api.scheduler.holdings import Amounts, Holdings
from api.scheduler.shares import Shares
from api.scheduler.snapshot import NO_CAP, DomainState, ProjectState, Resource, Running, Workload

NO_SHARE = 1 << 62
SCALE = 1 << 32


@dataclass
class Ledger:
    """The projects during one decision, with the fair share of each, and the claims of those that wait.

    The shares say who is furthest below. `beside` is the same for CPU and memory, `domains` are those that share.
    """

    projects: Mapping[str, ProjectState]
    holdings: dict[str, Holdings]
    claims: Claims
    beside: Beside
    domains: DomainLimits
    shares: Shares = field(default_factory=Shares)
    _placed: Counter[str] = field(default_factory=Counter, init=False)
    _own: set[str] = field(default_factory=set, init=False)
    _over_quota: dict[str, int] | None = field(default=None, init=False)
    _over_fair_share: tuple[Shares, dict[str, int]] | None = field(default=None, init=False)

    @classmethod
    def of(
        cls,
        projects: Mapping[str, ProjectState],
        holdings: Mapping[str, Holdings],
        now: int = 0,
        beside: Mapping[Resource, Mapping[str, Amounts]] | None = None,
        domains: Mapping[str, DomainState] | None = None,
    ) -> Ledger:
        """Return a ledger of its own, which changes none of these; `beside` is what projects hold of CPU and memory."""
        own = dict(holdings)
        claims = Claims(now)
        of_domains = DomainLimits.of(domains or {}, projects, own, claims)
        return cls(projects, own, claims, Beside.of(projects, beside or {}, claims), of_domains)

    def project(self, name: str) -> ProjectState:
        """Return the project; one that is no more has no quota and may not go beyond."""
        return self.projects.get(name) or ProjectState(name, 0, over_quota=False)

    def holdings_of(self, name: str) -> Holdings:
        """Return what runs of the project."""
        found = self.holdings.get(name)
        if found is None:
            found = self.holdings[name] = Holdings()
        return found

    def nominated(self, name: str, but: Workload | None = None) -> int:
        """Return what a project is about to have."""
        return self.claims.nominated(name, but)

    @property
    def fair(self) -> Mapping[str, int]:
        """The fair shares in whole workloads."""
        return self.shares.fair

    def retained(self, name: str, but: Workload | None = None) -> int:
        """Return what a project will have once those that are terminating are gone and those nominated run."""
        return self.holdings_of(name).retained + self.nominated(name, but)

    def deferred(self, workload: Workload, *, fixed: bool = False) -> int:
        """Return what of the project's quota is kept for others, or for those that cannot be reclaimed."""
        return sum(claim.kept(fixed=fixed) for claim in self.claims.deferred(workload.project, workload))

    def kept_of_cap(self, workload: Workload) -> int:
        """Return what of the most that the project may hold is kept for others."""
        return sum(claim.kept_of_cap() for claim in self.claims.deferred(workload.project, workload))

    def may_hold(self, workload: Workload) -> bool:
        """Return whether the project may have the workload now beside all that it holds."""
        own = self.holdings_of(workload.project)
        may = self._may(workload, own.held, own.fixed_held) and not self.domains.beyond(workload, now=True)
        return may and not self.beside.refuses(workload, now=True)

    def may_retain(self, workload: Workload) -> bool:
        """Return whether the project may have the workload once those that are terminating are gone."""
        return self.may_have_gpus(workload) and not self.beside.refuses(workload)

    def may_have_gpus(self, workload: Workload) -> bool:
        """Return whether the project may have the GPUs of the workload once those that are terminating are gone."""
        return self.may_have_beside_its_domain(workload) and not self.domains.beyond(workload)

    def may_have_beside_its_domain(self, workload: Workload) -> bool:
        """Return whether the project itself may have the GPUs of the workload then, whatever its domain may."""
        own = self.holdings_of(workload.project)
        return self._may(workload, own.retained, own.fixed_retained)

    def may_be_fixed(self, workload: Workload) -> bool:
        """Return whether the workload keeps the project's work that cannot be reclaimed within its quotas."""
        return self.may_have_gpus_fixed(workload) and self.beside.may_be_fixed(workload)

    def may_have_gpus_fixed(self, workload: Workload) -> bool:
        """Return whether the workload keeps the GPUs of work that cannot be reclaimed within the project's quota."""
        return self._may_be_fixed(workload, self.holdings_of(workload.project).fixed_retained)

    def in_quota(self, workload: Workload) -> bool:
        """Return whether the project stays within its guaranteed quota with the workload.

        That is the quota of GPUs for what has any, and for others those of CPU and memory, where it has such.
        """
        if not workload.total_milli:
            return self.beside.in_quota(workload)
        return self.after(workload) <= self.project(workload.project).quota_milli

    def is_guaranteed(self, workload: Workload) -> bool:
        """Return whether it is within its quota: without GPUs in one of CPU or memory, where any project has such."""
        if workload.total_milli or not self.beside.counts:
            return self.in_quota(workload)
        return self.beside.is_guaranteed(workload)

    def within_fair_share(self, workload: Workload) -> bool:
        """Return whether the project stays within its fair share with the workload."""
        after = self.retained(workload.project, workload) + workload.total_milli
        return not workload.total_milli or after <= self.fair.get(workload.project, 0)

    def may_reclaim_fairly(self, workload: Workload) -> bool:
        """Return whether it is within the fair share also where what projects had does not count."""
        after = self.retained(workload.project, workload) + workload.total_milli
        return self.within_fair_share(workload) and after <= self.shares.of_now.get(workload.project, 0)

    def ratios(self, name: str, but: Workload | None = None) -> tuple[int, int]:
        """Return how much of their shares a project's domain and the project have; without a domain that is one."""
        of_project = _ratio(self.retained(name, but), self.shares.exact.get(name, 0))
        domain = self.domains.of_project.get(name)
        if domain is None:
            return of_project, of_project
        return _ratio(self.domains.retained(domain, but), self.shares.domains.get(domain, 0)), of_project

    def had(self, name: str) -> int:
        """Return how much a project had lately of what is spare, for its weight."""
        project = self.project(name)
        return _ratio(project.had_milli, project.weight_milli or 1)

    def after(self, workload: Workload, *, fixed: bool = False) -> int:
        """Return what the project takes of its quota with the workload, or with `fixed` what of it stays so."""
        own = self.holdings_of(workload.project)
        return self._with(workload, own.fixed_retained if fixed else own.retained, fixed=fixed)

    def due(self, workload: Workload) -> int:
        """Return how much the project must give up of its own for the workload, where it has a cap."""
        return self._beyond_cap(workload, self.holdings_of(workload.project).retained)

    def over_quota(self, but: str) -> dict[str, int]:
        """Return what the projects have beyond their quota and their part of their domain's, without the one named."""
        if self._over_quota is None:
            lines = {name: self.project(name).quota_milli for name in self.holdings}
            for name, milli in self.shares.guaranteed.items():
                lines[name] = max(milli, lines.get(name, 0))
            self._over_quota = self._beyond(lines)
        return _without(self._over_quota, but)

    def over_fair_share(self, but: str) -> dict[str, int]:
        """Return what the projects have beyond their fair share, without the one named."""
        if self._over_fair_share is None or self._over_fair_share[0] is not self.shares:
            fair, of_now = self.shares.fair, self.shares.of_now
            lines = fair if fair is of_now else {name: max(milli, of_now.get(name, 0)) for name, milli in fair.items()}
            self._over_fair_share = self.shares, self._beyond(lines)
        return _without(self._over_fair_share[1], but)

    def before(self, beyond: Mapping[str, int]) -> dict[str, int]:
        """Return what of that projects have beyond a line they had before this decision."""
        return {name: milli - self._placed[name] for name, milli in beyond.items()}

    def place(self, workload: Workload) -> None:
        """Note that a workload starts."""
        self._placed[workload.project] += workload.total_milli
        self._forget_beyond()
        self._changing(workload.project).add(workload)
        self.beside.place(workload)

    def reclaim(self, victims: Iterable[Running]) -> None:
        """Note that these are being stopped."""
        self._forget_beyond()
        for running in victims:
            self._changing(running.workload.project).terminate(running.workload)
            self.beside.terminate(running.workload)

    def _changing(self, name: str) -> Holdings:
        """Return what runs of the project, from its first change on in a copy of the ledger's own."""
        if name not in self._own:
            self._own.add(name)
            held = self.holdings_of(name)
            self.holdings[name] = replace(held, sizes=held.sizes.copy())
        return self.holdings[name]

    def _forget_beyond(self) -> None:
        self._over_quota = self._over_fair_share = None

    def _beyond(self, lines: Mapping[str, int]) -> dict[str, int]:
        beyond = {name: own.retained - lines.get(name, 0) for name, own in self.holdings.items()}
        return {name: milli for name, milli in beyond.items() if milli > 0}

    def _with(self, workload: Workload, running: int, *, fixed: bool = False) -> int:
        """Return what the workload comes to beside what runs, is nominated, and is deferred."""
        nominated = self.claims.nominated(workload.project, workload, fixed=fixed)
        return running + nominated + self.deferred(workload, fixed=fixed) + workload.total_milli

    def _may(self, workload: Workload, total: int, fixed: int) -> bool:
        if not workload.total_milli:
            return True
        return not self._beyond_cap(workload, total) and self._may_be_fixed(workload, fixed)

    def _beyond_cap(self, workload: Workload, running: int) -> int:
        """Return by how much the project would go beyond its cap, or into what of that is kept for others.

        What is within the quota, beside what is kept of that, goes as far as the cap itself.
        """
        project = self.project(workload.project)
        if project.cap_milli == NO_CAP:
            return 0
        bare = running + self.nominated(project.name, workload) + workload.total_milli
        beyond = bare + self.kept_of_cap(workload) - project.cap_milli
        if beyond <= 0:
            return 0
        beyond_quota = self._with(workload, running) - project.quota_milli
        return max(0, min(beyond, max(bare - project.cap_milli, beyond_quota)))

    def _may_be_fixed(self, workload: Workload, fixed: int) -> bool:
        if workload.preemptible or not workload.total_milli:
            return True
        return self._with(workload, fixed, fixed=True) <= self.project(workload.project).quota_milli


def _ratio(has: int, share: int) -> int:
    return has * SCALE // share if share else NO_SHARE


def _without(beyond: Mapping[str, int], name: str) -> dict[str, int]:
    """Return a copy without a project."""
    found = dict(beyond)
    found.pop(name, None)
    return found
