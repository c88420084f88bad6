"""Random worlds: clusters that live through arrivals, ends and lost nodes, then come to rest, then drain."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import gcd

from api.scheduler.cluster import ClusterState
from api.scheduler.elastic import parts
from api.scheduler.fairness import ProjectDemand, fair_shares, in_whole_workloads
from api.scheduler.feasibility import Feasibility
from api.scheduler.planner import Planner
from api.scheduler.snapshot import (
    Bounds,
    Cause,
    Decision,
    NodeSnapshot,
    Placement,
    ProjectState,
    Resource,
    Running,
    SchedulerSettings,
    Snapshot,
    Workload,
)
from common.topology import TopologyLevel
from tests.unit.api.scheduler.truth import check_reasons
from tests.unit.api.scheduler.world import SECOND, World, node, to_wait

DAY = 86_400
LONG, SHORT, QUIET = 56, 16, 60
"""Cycles with arrivals, ends and losses, in every fifth world and in the others, and until nothing changes at most."""
READ = 4
"""The reasons of every fourth decision are held against the cluster."""
REFUSED_BESIDE = r"(CPUs?|MiB of memory) (more )?are asked for; (ask|stop)"
WITHOUT = Cause.NEVER_FITS, Cause.NO_NETWORK
SIZES = (0.1, 0.25, 0.5, 0.5, 0.6, 0.7, 1, 1, 1, 1, 1.3, 2, 2, 4)


class RandomWorld(World):
    """A world by its number: the same number is the same world."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.number = seed
        nodes = tuple(self._node(draw, at) for at in range(draw.choice((1, 2, 2, 3, 4))))
        self.total = sum(len(each.gpus) for each in nodes)
        settings = SchedulerSettings(draw.choice((0, 0, 0, 30)), draw.choice((0, 5, 60, 60)), draw.random() < 0.4)
        super().__init__(nodes, self._projects(draw), settings, now=3 * DAY)
        self.planner = Planner()
        self.random = draw
        self.made = 0
        self.lost: dict[str, int] = {}
        self.evicted: Counter[tuple[str, str]] = Counter()
        self.beneficiaries: dict[str, int] = {}
        self.cycle = 0
        self.patience = 1

    def _node(self, draw: random.Random, at: int) -> NodeSnapshot:
        gpus = draw.choice((1, 2, 2, 4, 4, 8))
        more = {"cpu_milli": gpus * 8000} if draw.random() < 0.3 else {}
        if not self.number % 3:
            more = {"cpu_milli": gpus * 4000, "memory_mib": gpus * 1024}
        groups = draw.choice(((), (), (), ("red",), ("blue",)))
        return node(f"n{at}", gpus, island=2, groups=groups, switch=draw.choice(("", "s", "t")), **more)

    def _projects(self, draw: random.Random) -> tuple[ProjectState, ...]:
        left, found = self.total * 1000, []
        for name in "abcd"[: draw.randint(2, 4)]:
            quota = draw.randint(0, left // 500) * 500 if draw.random() < 0.7 else 0
            left -= quota
            own = random.Random(f"{self.number}{name}")
            least = own.choice((None, None, None, 0, 30))
            each = ProjectState(name, quota, draw.random() < 0.8, draw.choice((*self.no_weights(), 1, 2, 3)), least)
            limit = quota + own.randint(1, 8) * 500 if each.over_quota and own.random() < 0.4 else None
            found.append(replace(each, limit_milli=limit, cpu=self._bounds(own, 4000), memory=self._bounds(own, 1024)))
        return tuple(found)

    def no_weights(self) -> tuple[None, int | None]:
        """By the quota, and in every fourth world also no part of what is spare."""
        return None, 0 if self.number % 4 == 1 else None

    def _bounds(self, own: random.Random, unit: int) -> Bounds | None:
        """A quota of CPU or memory in every third world, for some of its projects."""
        if self.number % 3 or own.random() < 0.4:
            return None
        quota = own.randint(0, 2 * self.total) * unit
        return Bounds(quota, quota + own.randint(0, self.total) * unit if own.random() < 0.3 else None)

    def arrive(self) -> None:
        """Let a session come, just now or submitted long ago."""
        draw, name = self.random, f"w{self.made:03}"
        self.made += 1
        gang = draw.random() < 0.15
        more: dict[str, object] = {}
        if draw.random() < 0.1:
            more = {"within": draw.choice((TopologyLevel.NODE, TopologyLevel.SWITCH)), "within_required": True}
        if draw.random() < 0.1:
            more["groups"] = draw.choice((("red",), ("blue",), ("red", "blue")))
        owner = draw.choice(self.projects)
        least, most = self._elastic(name, 2 if gang else 1) if "within" not in more else (0, 0)
        gpus = draw.choice(SIZES) if draw.random() < (0.95 if self.number % 3 else 0.6) else 0
        self.submit(
            Workload(
                name,
                owner.name,
                (self.now - draw.choice((0, 0, 0, 30, 100, DAY, 2 * DAY))) * SECOND,
                name,
                replicas=least or (draw.randint(2, 3) if gang else 1),
                min_replicas=least,
                max_replicas=most,
                gpu_milli=round(gpus * 1000),
                cpu_milli=draw.choice((0, 0, 1000, 4000) if self.number % 3 else (0, 1000, 4000, 8000)),
                memory_mib=0 if self.number % 3 else draw.choice((0, 512, 2048)),
                preemptible=draw.random() < 0.8 or most > 0,
                priority=draw.choice((50, 50, 50, 10, 90)),
                limit_s=draw.choice((0, 0, 0, 50, 300)),
                **more,  # type: ignore[arg-type]
            )
        )

    def _elastic(self, name: str, least: int) -> tuple[int, int]:
        """The least and the most containers of a gang that grows: in every fourth world for half of the sessions."""
        own = random.Random(f"{self.number}{name}")
        return (least, least + own.randint(1, 4)) if self.number % 4 == 1 and own.random() < 0.5 else (0, 0)

    def lose(self) -> None:
        """Let a node be lost with all that runs there, or come back."""
        each = self.random.choice(self.nodes)
        if not each.open:
            self._set_open(each, is_open=True)
        elif sum(other.open for other in self.nodes) > 1:
            self._set_open(each, is_open=False)
            for id_, running in list(self.running.items()):
                if any(place.node == each.name for place in running.placements):
                    del self.running[id_]
                    if id_ not in self.terminating:
                        self.queue[id_] = to_wait(running.workload, self.now)
            self._forget_what_was_kept_on(each.name)

    def _forget_what_was_kept_on(self, node: str) -> None:
        """Hold nobody to a promise of places on a node that is lost: nobody could have known of it."""
        kept = self.decisions[-1].reservations if self.decisions else {}
        for id_, places in kept.items():
            if any(place.node == node for place in places):
                self._forget(id_)

    def _forget(self, beneficiary: str) -> None:
        self.beneficiaries.pop(beneficiary, None)
        self.evicted = Counter({pair: times for pair, times in self.evicted.items() if pair[1] != beneficiary})

    def _set_open(self, which: NodeSnapshot, *, is_open: bool) -> None:
        self.nodes = tuple(replace(each, open=is_open) if each is which else each for each in self.nodes)

    def decide(self, snapshot: Snapshot) -> Decision:
        """As the API's loop does, with a planner that lives as long as the world."""
        self.planner.sync(snapshot)
        return self.planner.decide_on(snapshot)

    def step(self) -> Decision:
        """Decide once, ten seconds later, and see that what is said is so."""
        self.delete(*(id_ for id_, each in self.running.items() if 0 < each.ends_at <= self.now * SECOND))
        before = self.snapshot()
        decision = super().step()
        if self.cycle % READ == 0:
            check_reasons(before, decision)
        self.now += 9
        self.cycle += 1
        for id_ in decision.placements:
            self._forget(id_)
        for each in decision.reclaims:
            pair = each.victim, each.beneficiary
            self.evicted[pair] += not each.ranks
            self.beneficiaries[each.beneficiary] = self.cycle
            if each.moved:
                self.beneficiaries[each.victim] = self.cycle
            assert self.evicted[pair] == 1 or each.ranks, f"evicted twice for the same: {pair}"
        return decision

    def run(self) -> None:
        """Live, come to rest and drain; a promise that is broken is told with the number of the world."""
        try:
            self.live()
            self.check_rest(self.rest())
            self.drain()
        except Exception as error:
            error.add_note(f"in the world of number {self.number}, cycle {self.cycle}")
            raise

    def live(self) -> None:
        """Arrivals, ends and losses."""
        for _ in range(SHORT if self.number % 5 else LONG):
            for _ in range(self.random.choice((0, 0, 0, 0, 1, 1, 2))):
                self.arrive()
            if self.random.random() < 0.04:
                self.lose()
            if self.running and self.random.random() < 0.25:
                self.delete(self.random.choice(sorted(self.running)))
            self.step()
        for each in self.nodes:
            self._set_open(each, is_open=True)

    def rest(self) -> Decision:
        """Nothing comes and nothing ends: nothing changes any more."""
        still = 0
        for _ in range(QUIET * self.patience):
            before = self.running.copy(), self.queue.copy()
            decision = self.step()
            still = still + 1 if (self.running, self.queue) == before else 0
            if still > 8 * self.patience:
                return decision
        raise AssertionError(f"no rest after {QUIET * self.patience} cycles: {decision.log}")

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
        """The first of each project has no single one in its way that is beyond what its project is entitled to.

        Within its quota against those beyond theirs; within its fair share against those that go beyond theirs by no
        less than what would be stopped: so shares are met within one session.
        """
        held, quotas = self.held(), {each.name: each.quota_milli for each in self.projects}
        rights, lines, given = *self._fair_shares(), self._given_to(quotas)
        kept = decision.reservations
        for project in self.projects:
            mine = [item for item in self.queue.values() if item.project == project.name and item.total_milli]
            mine = [item for item in mine if decision.pending_reasons[item.id].cause not in WITHOUT]
            mine = [item for item in mine if not re.search(REFUSED_BESIDE, decision.pending_reasons[item.id].reason)]
            first = min(mine, key=lambda item: (-item.priority, item.submitted_at, item.id), default=None)
            if first is None:
                continue
            after = held[project.name] + first.total_milli
            for each in self._alone():
                owner, milli = each.workload.project, each.workload.total_milli
                if owner == project.name or not each.workload.preemptible or milli == 0:
                    continue
                if not self._may(first, each.workload):
                    continue
                owed = after <= quotas[project.name] and held[owner] > given[owner]
                is_fair = first.preemptible and after <= rights[project.name] and held[owner] - milli >= lines[owner]
                others = [(self.queue[id_], places) for id_, places in kept.items() if id_ != first.id]
                if owed or is_fair:
                    assert not self.fits_without(each.workload.id, first, () if owed else others), (
                        f"{first.id} is within its {'quota' if owed else 'fair share'}, {each.workload.id} is not:"
                        f" {decision.pending_reasons[first.id]}"
                    )

    def _alone(self) -> list[Running]:
        """Whoever may be stopped alone: of a gang that has grown its further containers."""
        return [part for each in self.running.values() for part in parts(each) if not part.extras]

    def _check_beside(self, decision: Decision) -> None:
        """Nobody who has CPU or memory guaranteed waits behind a guest that has no right of its own."""
        held: Counter[tuple[str, Resource]] = Counter()
        for each in self.running.values():
            held.update({(each.workload.project, item): each.workload.amount(item) for item in Resource})
        given = {each.name: _given(each) for each in self.projects}

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
                    assert not self.fits_without(other.id, first, others), f"{first.id} waits behind {other.id}"

    def _may(self, first: Workload, gone: Workload) -> bool:
        """Whether nothing but places and shares keeps one from starting in another's stead."""
        return first.project != gone.project

    def _given_to(self, quotas: Mapping[str, int]) -> Mapping[str, int]:
        """What is guaranteed to each, so that no other guarantee takes of it."""
        return quotas

    def _fair_shares(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """What of the cluster is whose, in whole sessions: what each has a right to, and what nobody takes of it."""
        demands = self._demands()
        shares = in_whole_workloads(fair_shares(self.total * 1000, demands), demands)
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
        return project.quota_milli if bound else project.limit_milli or self.total * 1000

    def fits_without(
        self, gone: str, workload: Workload, others: Iterable[tuple[Workload, tuple[Placement, ...]]] = ()
    ) -> bool:
        """Whether a workload would fit if one did not run, beside what is kept for others."""
        cluster = ClusterState(self.nodes)
        for each in (part for running in self.running.values() for part in parts(running)):
            if each.workload.id != gone:
                cluster.allocate(each.placements, each.workload)
        for other, places in others:
            cluster.allocate(places, other)
        return cluster.find(workload) is not None

    def drain(self) -> None:
        """Nothing comes and what runs ends, one after the other: whatever can run at all has its turn."""
        can_never = Feasibility(ClusterState(self.nodes))
        caps = {each.name: each for each in self.projects}
        while self.running or self.step().placements:
            self.delete(*[id_ for id_, each in sorted(self.running.items()) if not each.terminating][:1])
            self.step()
        for workload in self.queue.values():
            project = caps[workload.project]
            bound = not project.over_quota or not workload.preemptible
            most = self._most(project, bound=bound)
            most_beside = [
                (each, bounds.quota if bound else project.cap_of(bounds)) for each, bounds in _given(project)
            ]
            may = all(workload.amount(each) <= amount for each, amount in most_beside)
            if not can_never.never_fits(workload) and workload.total_milli <= most and may:
                raise AssertionError(f"{workload.id} never had its turn")


def _given(project: ProjectState) -> list[tuple[Resource, Bounds]]:
    return [(each, bounds) for each in Resource if (bounds := project.bounds(each))]
