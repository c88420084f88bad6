"""Random worlds in which what projects had lately counts, or in which they share inside of domains, or both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from api.scheduler.shares import Shares
from api.scheduler.snapshot import Decision, DomainState, ProjectState, Snapshot, Workload
from tests.unit.api.scheduler.random_worlds import RandomWorld


class SharingWorld(RandomWorld):
    """A world by its number, with domains in two of three, and with what projects had in two of three."""

    def __init__(self, seed: int) -> None:
        self.domains: tuple[DomainState, ...] = ()
        super().__init__(seed)

    def _projects(self, draw: random.Random) -> tuple[ProjectState, ...]:
        found = super()._projects(draw)
        own = random.Random(f"{self.number} shares")
        if self.number % 3:
            found = tuple(replace(each, had_milli=own.choice((0, 0, 1, 500, 1000, 8000))) for each in found)
        if self.number % 3 == 1:
            return found
        found = tuple(replace(each, domain=own.choice(("", "x", "x", "y"))) for each in found)
        self.domains = tuple(self._domain(own, name, found) for name in "xy")
        return found

    def _domain(self, own: random.Random, name: str, projects: tuple[ProjectState, ...]) -> DomainState:
        """A domain whose quota and limit, if it has any, suffice for the quotas of its projects."""
        given = sum(each.quota_milli for each in projects if each.domain == name)
        quota = own.choice((0, given + own.randint(0, 4) * 500))
        limit = own.choice((None, max(given, quota) + own.randint(0, 6) * 500))
        return DomainState(name, quota, own.choice((*self.no_weights(), 1, 3)), limit)

    def snapshot(self) -> Snapshot:
        """As the scheduler sees it, domains too."""
        return replace(super().snapshot(), domains=self.domains)

    def step(self) -> Decision:
        """Decide once; no domain comes to have more than its limit."""
        before = self._of_domains()
        if self.number % 3 and self.number % 2:
            self._age()
        decision = super().step()
        for each in self.domains:
            now = self._of_domains()[each.name]
            if each.limit_milli is not None and now > before[each.name]:
                assert now <= each.limit_milli, f"{each} has {now}: {decision.log}"
        return decision

    def _of_domains(self) -> Counter[str]:
        """What the projects of each domain hold, also what is being stopped."""
        of = {each.name: each.domain for each in self.projects}
        found: Counter[str] = Counter()
        for each in self.running.values():
            found[of[each.workload.project]] += each.workload.total_milli
        return found

    def _may(self, first: Workload, gone: Sequence[Workload]) -> bool:
        """Also its domain may have it in the others' stead."""
        of = {each.name: each.domain for each in self.projects}
        limits = {each.name: each.limit_milli for each in self.domains}
        limit, domain = limits.get(of[first.project]), of[first.project]
        freed = sum(each.total_milli for each in gone if of[each.project] == domain)
        fits = limit is None or self._of_domains()[domain] - freed + first.total_milli <= limit
        return fits and super()._may(first, gone)

    def _given_to(self, quotas: Mapping[str, int]) -> Mapping[str, int]:
        guaranteed = self._shares().guaranteed
        return {name: max(quota, guaranteed.get(name, 0)) for name, quota in quotas.items()}

    def _fair_shares(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        shares = self._shares()
        both = [(name, milli, shares.of_now[name]) for name, milli in shares.fair.items()]
        return {name: min(pair) for name, *pair in both}, {name: max(pair) for name, *pair in both}

    def _shares(self) -> Shares:
        return Shares.of(self.total_milli, self._demands(), {each.name: each for each in self.domains})

    def _most(self, project: ProjectState, *, bound: bool) -> int:
        most = super()._most(project, bound=bound)
        limits = {each.name: each.limit_milli for each in self.domains}
        limit = limits.get(project.domain)
        return most if limit is None else min(most, limit)

    def _age(self) -> None:
        """Ten seconds pass: what projects had comes nearer to what they have beyond their quotas."""
        held = self.held()
        self.projects = tuple(
            replace(
                each,
                had_milli=each.had_milli + round((max(0, held[each.name] - each.quota_milli) - each.had_milli) / 9),
            )
            for each in self.projects
        )
