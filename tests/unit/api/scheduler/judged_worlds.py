"""Judged worlds: what holds of a cluster in which nothing changes any more."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import gcd

from api.scheduler.cluster import ClusterState
from api.scheduler.elastic import parts
from api.scheduler.fairness import ProjectDemand, fair_shares, in_whole_workloads
from api.scheduler.feasibility import Feasibility
from api.scheduler.snapshot import Bounds, Cause, Decision, Placement, ProjectState, Resource, Running, Workload
from tests.unit.api.scheduler.world import World

REFUSED_BESIDE = r"asks for [\d.]+ (CPUs?|MiB of memory)( more)?; (ask|stop)"
WITHOUT = Cause.NEVER_FITS, Cause.NO_NETWORK
TOGETHER, SETS = 4, 400
"""Of so many sessions one set or another could be stopped, and so many sets are looked at, the smallest first."""

Kept = Iterable[tuple[Workload, tuple[Placement, ...]]]


class JudgedWorld(World):
    """A world that can be judged once it is at rest."""

    beneficiaries: dict[str, int]
    """For whom others were stopped, in which cycle."""

    @property
    def total_milli(self) -> int:
        """What all nodes have."""
        return sum(gpu.capacity_milli for each in self.nodes for gpu in each.gpus)

    def check_rest(self, decision: Decision) -> None:
        """Assert what holds once nothing changes any more."""
        waits = decision.pending_reasons
        assert not any(wait.cause is Cause.RECLAIMING for wait in waits.values()), "whoever reclaims starts"
        for id_, cycle in self.beneficiaries.items():
            assert id_ not in self.queue, f"{id_} was made room for in cycle {cycle} and waits"
        free = ClusterState(self.nodes)
        for each in self.running.values():
            free.allocate(each.placements, each.workload)
        for id_, places in decision.reservations.items():
            free.allocate(places, self.queue[id_] if id_ in self.queue else self.running[id_].workload)
        for id_, wait in waits.items():
            if wait.cause not in (Cause.QUOTA, Cause.NEVER_FITS, Cause.NO_NETWORK) and " of its " not in wait.reason:
                assert free.find(self.queue[id_]) is None, f"{id_} fits and waits: {wait.reason}"
        self._check_claims(decision)
        self._check_beside(decision)

    def _check_claims(self, decision: Decision) -> None:
        """The first of each project has nobody in its way, alone or with few others, who is beyond what is its due.

        Within its quota against those beyond theirs; within its fair share against those that go beyond theirs by no
        less than what would be stopped: so shares are met within one session.
        """
        for project in self.projects:
            mine = [item for item in self.queue.values() if item.project == project.name and item.total_milli]
            mine = [item for item in mine if decision.pending_reasons[item.id].cause not in WITHOUT]
            mine = [item for item in mine if not re.search(REFUSED_BESIDE, decision.pending_reasons[item.id].reason)]
            first = min(mine, key=lambda item: (-item.priority, item.submitted_at, item.id), default=None)
            if first is None:
                continue
            kept = [(self.queue[id_], at) for id_, at in decision.reservations.items() if id_ in self.queue]
            others = [(item, at) for item, at in kept if item.id != first.id]
            for gone, is_owed in self._in_the_way_of(first):
                ids = [each.id for each in gone]
                assert not self.fits_without(ids, first, () if is_owed else others), (
                    f"{first.id} is within its {'quota' if is_owed else 'fair share'}, {', '.join(ids)} are not:"
                    f" {decision.pending_reasons[first.id]}"
                )

    def _in_the_way_of(self, first: Workload) -> Iterator[tuple[Sequence[Workload], bool]]:
        """Who may be stopped for it, and whether for its quota; the smallest sets first."""
        held, quotas = self.held(), {each.name: each.quota_milli for each in self.projects}
        rights, lines, given = *self._fair_shares(), self._given_to(quotas)
        after = held[first.project] + first.total_milli
        within, is_fair = after <= quotas[first.project], first.preemptible and after <= rights[first.project]
        found = [each.workload for each in self._alone() if each.workload.project != first.project]
        found = [each for each in found if each.preemptible and each.total_milli]
        found = [
            each
            for each in found
            if (within and held[each.project] > given[each.project])
            or (is_fair and held[each.project] - each.total_milli >= lines[each.project])
        ]
        if not found or not self.fits_without([each.id for each in found], first):
            return
        sets = (gone for count in range(1, TOGETHER + 1) for gone in combinations(found, count))
        for _, gone in zip(range(SETS), sets, strict=False):
            if not self._may(first, gone):
                continue
            of: dict[str, list[int]] = {}
            for each in gone:
                of.setdefault(each.project, []).append(each.total_milli)
            # the last of a project may take it below its line
            is_owed = within and all(held[name] - sum(of[name]) + max(of[name]) > given[name] for name in of)
            if is_owed or (is_fair and all(held[name] - sum(of[name]) >= lines[name] for name in of)):
                yield gone, is_owed

    def _alone(self) -> list[Running]:
        """Whoever may be stopped alone: of a gang that has grown its further containers."""
        return [part for each in self.running.values() for part in parts(each) if not part.extras]

    def _check_beside(self, decision: Decision) -> None:
        """Nobody who has CPU or memory guaranteed waits behind a guest that has no right of its own."""
        held: Counter[tuple[str, Resource]] = Counter()
        for each in self.running.values():
            held.update({(each.workload.project, item): each.workload.amount(item) for item in Resource})
        given = {each.name: given_to(each) for each in self.projects}

        def has_right(workload: Workload, *, more: bool) -> bool:
            name = workload.project
            asked = [(item, bounds.quota) for item, bounds in given[name] if workload.amount(item)]
            return bool(asked) and all(
                held[name, item] + (workload.amount(item) if more else 0) <= quota for item, quota in asked
            )

        waits = decision.pending_reasons
        asking = [item for item in self.queue.values() if waits[item.id].cause is not Cause.NO_NETWORK]
        for first in [item for item in asking if not item.total_milli and has_right(item, more=True)]:
            others = [(self.queue[id_], places) for id_, places in decision.reservations.items() if id_ != first.id]
            for each in self.running.values():
                other = each.workload
                is_guest = not other.total_milli and other.preemptible and other.project != first.project
                if is_guest and not has_right(other, more=False):
                    assert not self.fits_without([other.id], first, others), f"{first.id} waits behind {other.id}"

    def _may(self, first: Workload, gone: Sequence[Workload]) -> bool:
        """Whether nothing but places and shares keeps one from starting in others' stead."""
        return all(first.project != each.project for each in gone)

    def _given_to(self, quotas: Mapping[str, int]) -> Mapping[str, int]:
        """What is guaranteed to each, so that no other guarantee takes of it."""
        return quotas

    def _fair_shares(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """What of the cluster is whose, in whole sessions: what each has a right to, and what nobody takes of it."""
        demands = self._demands()
        shares = in_whole_workloads(fair_shares(self.total_milli, demands), demands)
        return shares, shares

    def _demands(self) -> list[ProjectDemand]:
        """What each project has and asks for."""
        can_never, held = Feasibility(ClusterState(self.nodes)), self.held()
        demands: list[ProjectDemand] = []
        for project in self.projects:
            able = [item for item in self.queue.values() if item.project == project.name and item.total_milli]
            able = [item for item in able if not can_never.never_fits(item)]
            runs = [each.workload for each in self.running.values() if each.workload.project == project.name]
            fixed = sum(item.total_milli for item in runs if not item.preemptible)
            asked = sum(item.total_milli for item in able if not item.preemptible)
            asked = min(asked, max(0, project.quota_milli - fixed))
            asked += sum(item.total_milli for item in able if item.preemptible)
            unit = gcd(*(item.total_milli for item in (*able, *runs))) or 1
            demands.append(ProjectDemand(project, held[project.name] + asked, held[project.name], unit))
        return demands

    def _most(self, project: ProjectState, *, bound: bool) -> int:
        """The most that a project may hold, or that of it which cannot be reclaimed."""
        return project.quota_milli if bound else project.limit_milli or self.total_milli

    def fits_without(self, gone: Collection[str], workload: Workload, others: Kept = ()) -> bool:
        """Whether a workload would fit if some did not run, beside what is kept for others."""
        cluster = ClusterState(self.nodes)
        for each in (part for running in self.running.values() for part in parts(running)):
            if each.workload.id not in gone:
                cluster.allocate(each.placements, each.workload)
        for other, places in others:
            cluster.allocate(places, other)
        return cluster.find(workload) is not None


def given_to(project: ProjectState) -> list[tuple[Resource, Bounds]]:
    """What a project has beside GPUs."""
    return [(each, bounds) for each in Resource if (bounds := project.bounds(each))]
