"""Random worlds: clusters that live through arrivals, ends and lost nodes, then come to rest, then drain."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import settings

from api.control.cycles import next_change
from api.scheduler.cluster import ClusterState
from api.scheduler.feasibility import Feasibility
from api.scheduler.planner import Planner
from api.scheduler.snapshot import (
    Bounds,
    Decision,
    GpuState,
    NodeSnapshot,
    ProjectState,
    SchedulerSettings,
    Snapshot,
    Workload,
    taking,
)
from common.gpu.kinds import Enforcement
from common.topology import TopologyLevel
from tests.unit.api.scheduler.judged_worlds import JudgedWorld, given_to
from tests.unit.api.scheduler.truth import check_reasons
from tests.unit.api.scheduler.world import SECOND, node, to_wait

DAY = 86_400
CYCLES, QUIET = 80, 80
"""Cycles with arrivals, ends and losses, and until nothing changes at most."""
PAUSES = (0, 0, 30, 150, 600, 2400, 9600)
"""Seconds between the cycles in which nothing changes any more: whoever waits or runs for long has its turn in them."""
SMALL, MUCH, CROWD = (0.5, 0.5, 1), (1, 2, 2, 3, 4), 12
"""GPUs of sessions that fill a cluster, and of those that come then; so many of the former at most."""
FEW_EXAMPLES = 50
"""A profile with more than these is the full one."""
MOVING = 3
"""Of seven worlds in that one sessions are moved for others."""
SLICES = ((500, 500), (250, 250, 500), (142, 285, 571))
SIZES = (0.1, 0.25, 0.5, 0.5, 0.6, 0.7, 1, 1, 1, 1, 1.3, 2, 2, 4)


def numbers(part: int, parts: int, *, many: int, few: int) -> range:
    """Return which worlds a part has of the first ones: of `many` in the full profile, of `few` in the fast one."""
    return range(part, many if settings().max_examples > FEW_EXAMPLES else few, parts)


class RandomWorld(JudgedWorld):
    """A world by its number: the same number is the same world."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.number = seed
        nodes = tuple(self._node(draw, at) for at in range(draw.choice((1, 2, 2, 3, 4))))
        self.total = sum(gpu.capacity_milli for each in nodes for gpu in each.gpus) // 1000
        settings = SchedulerSettings(
            min_runtime_s=draw.choice((0, 0, 0, 30)),
            reserve_after_s=draw.choice((0, 5, 60, 60)),
            strict_order_after_s=int(draw.random() < 0.4),
            consolidation=seed % 7 == MOVING,
        )
        super().__init__(nodes, self._projects(draw), settings, now=3 * DAY)
        self.planner = Planner()
        self.random = draw
        self.made = 0
        self.lost: dict[str, int] = {}
        self.evicted: Counter[tuple[str, str]] = Counter()
        self.beneficiaries: dict[str, int] = {}
        self.cycle = 0
        self.patience = 1
        self.seen: object = None
        self.due = 0

    def _node(self, draw: random.Random, at: int) -> NodeSnapshot:
        gpus = draw.choice((1, 2, 2, 4, 4, 8))
        more = {"cpu_milli": gpus * 8000} if draw.random() < 0.3 else {}
        if not self.number % 3:
            more = {"cpu_milli": gpus * 4000, "memory_mib": gpus * 1024}
        groups = draw.choice(((), (), (), ("red",), ("blue",)))
        found = node(f"n{at}", gpus, island=2, groups=groups, switch=draw.choice(("", "s", "t")), **more)
        return found if self.number % 5 != 2 else self._sliced(found)

    def _sliced(self, whole: NodeSnapshot) -> NodeSnapshot:
        """In every fifth world half of the nodes have a GPU in slices, of which each goes whole to one container."""
        own = random.Random(f"{self.number}{whole.name}")
        if own.random() < 0.5:
            return whole
        sizes, kept, first = own.choice(SLICES), whole.gpus[:-1], len(whole.gpus) - 1
        firm = {"island": whole.gpus[-1].island, "enforcement": Enforcement.MIG, "slice": True}
        cut = [
            GpuState(first + at, f"{whole.name}-{first + at}", capacity_milli=size, **firm)  # type: ignore[arg-type]
            for at, size in enumerate(sizes)
        ]
        return replace(whole, gpus=(*kept, *cut))

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

    def arrive(self, sizes: Sequence[float] = SIZES, project: str = "") -> None:
        """Let a session come, just now or submitted long ago, of a random project where none is named."""
        draw, name = self.random, f"w{self.made:03}"
        self.made += 1
        gang = draw.random() < 0.15
        more: dict[str, object] = {}
        if draw.random() < 0.1:
            more = {"within": draw.choice((TopologyLevel.NODE, TopologyLevel.SWITCH)), "within_required": True}
        if draw.random() < 0.1:
            more["groups"] = draw.choice((("red",), ("blue",), ("red", "blue")))
            more["grouped_only"] = random.Random(f"{self.number}{name} group").random() < 0.3
        owner = project or draw.choice(self.projects).name
        least, most = self._elastic(name, 2 if gang else 1) if "within" not in more else (0, 0)
        gpus = draw.choice(sizes) if draw.random() < (0.95 if self.number % 3 else 0.6) else 0
        self.submit(
            Workload(
                name,
                owner,
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
        self.delete(*self._ended())
        before = self.snapshot()
        self.seen, self.due = self._changing(), next_change(before)
        decision = super().step()
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

    def _ended(self) -> list[str]:
        return [id_ for id_, each in self.running.items() if 0 < each.ends_at <= self.now * SECOND]

    def _changing(self) -> object:
        return self.nodes, self.projects, self.running.copy(), self.queue.copy()

    def _step_if_new(self) -> None:
        """As the API's loop does: where nothing changed, and time alone changes nothing yet, ten seconds pass."""
        is_round = self.decisions and self.decisions[-1].left_out
        if self.seen != self._changing() or self._ended() or self.now * SECOND >= self.due or is_round:
            self.step()
        else:
            self.now += 10
            self.cycle += 1

    def run(self) -> None:
        """Live, come to rest and drain; a promise that is broken is told with the number of the world."""
        try:
            self.live()
            if self.number % 2:
                self.crowd()
            self.check_rest(self.rest())
            self.drain()
        except Exception as error:
            error.add_note(f"in the world of number {self.number}, cycle {self.cycle}")
            raise

    def live(self) -> None:
        """Arrivals, ends and losses."""
        for _ in range(CYCLES):
            for _ in range(self.random.choice((0, 0, 0, 0, 0, 0, 1, 2))):
                self.arrive()
            if self.random.random() < 0.04:
                self.lose()
            if self.running and self.random.random() < 0.35:
                self.delete(self.random.choice(sorted(self.running)))
            self._step_if_new()
        for each in self.nodes:
            self._set_open(each, is_open=True)

    def crowd(self) -> None:
        """Let what runs end but for a few, and small sessions of one project take their places.

        Then the others ask for much, mostly within their quotas: several have to go for one.
        """
        self.delete(*sorted(self.running)[2:])
        guest, *others = sorted(self.projects, key=lambda each: (not each.over_quota, each.quota_milli, each.name))
        for _ in range(min(2 * self.total, CROWD)):
            self.arrive(SMALL, guest.name)
        for _ in range(2):
            self.step()
        for each in others:
            self.arrive([size for size in MUCH if 1000 * size <= each.quota_milli] or SIZES, each.name)

    def rest(self) -> Decision:
        """Nothing comes, and what has no end stays: nothing changes any more, however long that is looked at."""
        still = 0
        for _ in range(QUIET * self.patience):
            before = self.running.copy(), self.queue.copy()
            decision = self.step()
            still = still + 1 if (self.running, self.queue) == before else 0
            if still >= len(PAUSES) * self.patience:
                return decision
            self.now += PAUSES[still // self.patience]
        raise AssertionError(f"no rest after {QUIET * self.patience} cycles: {decision.log}")

    def least_milli(self, workload: Workload) -> int:
        """What it would hold on the empty cluster at least: it may need a slice, which counts whole."""
        empty = ClusterState(self.nodes)
        ways = [empty.find(each) for each in (workload, replace(workload, on_slices=False))]
        return min((taking(workload, places).total_milli for places in ways if places), default=workload.total_milli)

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
                (each, bounds.quota if bound else project.cap_of(bounds)) for each, bounds in given_to(project)
            ]
            may = all(workload.amount(each) <= amount for each, amount in most_beside)
            if not can_never.never_fits(workload) and self.least_milli(workload) <= most and may:
                raise AssertionError(f"{workload.id} never had its turn")
