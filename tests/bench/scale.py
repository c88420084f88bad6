"""How long decisions take on a large cluster: one JSON line.

`python tests/bench/scale.py --nodes N --gpus 8 --sessions M` fills a cluster of N nodes with M sessions of many sizes,
of 50 projects (`--projects`; with `--beside` they have quotas of CPU and memory), and keeps it in one `Planner`, as the
API's loop does between its cycles. The garbage collector runs as ever. What is counted:

- `decision_p50_ms`, `decision_p99_ms`: `Planner.decide` for a queue of one new session, of mixed sizes, and
  `Planner.add` of what it placed; before it another session ends, so that the cluster stays as full (not counted).
- `decision_p99_cpu_ms`: the same in CPU time, which other work of the machine does not change.
- `follow_unchanged_cpu_ms`, `follow_node_cpu_ms`: what the loop tells the planner before a decision: nothing new, and a
  node that closes or opens. The loop itself, with the database: `tests/bench/scheduler_loop.py`.
- `cycle_1000_pending_cpu_ms`: one decision on a queue of 1,000 sessions, with a reason for each that waits.
- `cycle_gangs_cpu_ms`: the same with every fifth session a gang of 4 to 20 containers with 1 to 8 GPUs each, the
  cluster full, and all of them waiting for so long that places are kept for those that are entitled to them.
- `cycle_priorities_cpu_ms`: the same queue, all of it of one project, in a hundred priorities.
- `cycle_groups_cpu_ms`: the same queue, where the nodes are divided into one resource group for each project.
- `cycle_waiting_cpu_ms`, `cycle_distinct_cpu_ms`, `cycle_quarters_cpu_ms`: CPU time of one decision on 1,000 sessions
  that wait long on the full cluster: of eight sizes, each with an amount of CPU and memory of its own, and of a quarter
  of a GPU each.
- `cycle_antichain_cpu_ms`, `cycle_antichain_of_one_cpu_ms`: the same where each asks for more CPU and less memory than
  the one before, so that no request covers another; of all projects, and of one alone.
- `reclaim_one_gpu_ms`: every GPU is in use, and a project within its quota asks for one; the decision names the victim.
- `never_fits_ms`: one decision on a session that fits nowhere.
- `rss_mib`: the most memory that the process has had.

Exits 1 where one of the aims is missed, by CPU time.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from api.scheduler.planner import Planner
from api.scheduler.snapshot import (
    Bounds,
    Cause,
    Decision,
    GpuState,
    NodeSnapshot,
    Placement,
    ProjectState,
    Running,
    SchedulerSettings,
    Snapshot,
    Workload,
)
from common.gpu.share import GpuShare

SECOND = 1_000_000
CYCLE_MS = 1000.0
MIXES = (
    "1000_pending",
    "gangs",
    "priorities",
    "groups",
    "waiting",
    "distinct",
    "quarters",
    "antichain",
    "antichain_of_one",
    "growth",
)
AIMS = {
    "decision_p99_cpu_ms": 20.0,
    "reclaim_one_gpu_cpu_ms": 100.0,
    "follow_unchanged_cpu_ms": 5.0,
    "follow_node_cpu_ms": 30.0,
    **{f"cycle_{mix}_cpu_ms": CYCLE_MS for mix in MIXES},
}
"""For 10,000 nodes and 50,000 sessions, and so for fewer."""
SIZES = ((100, 2), (250, 6), (500, 12), (1000, 50), (1500, 2), (2000, 14), (4000, 9), (8000, 5))
"""Milli-GPU of a session, and how many of a hundred ask for it."""


def cluster(count: int, gpus: int) -> list[NodeSnapshot]:
    """Nodes of one kind, 32 on a leaf switch, in NVLink islands of four."""
    return [
        NodeSnapshot(
            f"node-{at:05}",
            tuple(GpuState(index, f"gpu-{at:05}-{index}", "H200", index // 4) for index in range(gpus)),
            cpu_milli=gpus * 16_000,
            memory_mib=gpus * 131_072,
            switch=f"leaf-{at // 32:04}",
        )
        for at in range(count)
    ]


class Bench:
    """A cluster in use."""

    def __init__(
        self, nodes: int, gpus: int, sessions: int, projects: int = 50, seed: int = 42, *, beside: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.gpus, self.now, self.made = gpus, 0, 0
        quota = nodes * gpus * 1000 // projects
        cpu = Bounds(quota * 16) if beside else None
        memory = Bounds(quota * 131) if beside else None
        self.projects = [ProjectState(f"project-{at:03}", quota, cpu=cpu, memory=memory) for at in range(projects)]
        self.nodes = tuple(cluster(nodes, gpus))
        self.planner = Planner(self.nodes, self.projects)
        self.held: deque[str] = deque()
        self.fill(sessions)

    def fill(self, sessions: int) -> None:
        """Let sessions run, packed one beside the other, the large ones first, as many as there is room for."""
        free = [(node, list(node.gpus)) for node in self.nodes]
        shared: dict[int, tuple[NodeSnapshot, GpuState, int]] = {}
        for workload in sorted((self.session() for _ in range(sessions)), key=lambda item: -item.gpu_milli):
            whole, part = divmod(workload.gpu_milli, 1000)
            while free and len(free[-1][1]) < whole + (part > 0):
                free.pop()
            if not free:
                break
            node, gpus = free[-1]
            shares = [GpuShare(gpu.uuid, gpu.index, 1000) for gpu in (gpus.pop() for _ in range(whole))]
            if part:
                if whole or part not in shared:
                    shared[part] = node, gpus.pop(), 1000
                node, gpu, left = shared.pop(part)
                shares.append(GpuShare(gpu.uuid, gpu.index, part))
                if left >= 2 * part:
                    shared[part] = node, gpu, left - part
            self.planner.add(Running(workload, (Placement(node.name, tuple(shares)),), self.now))
            self.held.append(workload.id)
        self.random.shuffle(self.held)

    def session(self, project: str = "", milli: int = 0) -> Workload:
        """A new session, of a random project and size where none is named."""
        self.made += 1
        self.now += SECOND
        sizes, parts = zip(*SIZES, strict=True)
        milli = milli or min(self.random.choices(sizes, parts)[0], self.gpus * 1000)
        name = f"s{self.made:07}"
        owner = project or self.random.choice(self.projects).name
        return Workload(name, owner, self.now, name, gpu_milli=milli, cpu_milli=milli * 8, memory_mib=milli * 64)

    def do(self, queue: list[Workload], decision: Decision) -> int:
        """Let what was placed run; returns how many that were."""
        asked = {workload.id: workload for workload in queue}
        for id_, places in decision.placements.items():
            self.planner.add(Running(asked[id_], places, self.now))
            self.held.append(id_)
        return len(decision.placements)

    def decisions(self, count: int = 1000) -> tuple[list[float], list[float]]:
        """Milliseconds of one decision after the other, by the clock and of CPU, the cluster as full before each."""
        times: list[float] = []
        cpu: list[float] = []
        for _ in range(count):
            self.planner.remove(self.held.popleft())
            workload = self.session()
            start, start_cpu = time.perf_counter(), time.process_time()
            decision = self.planner.decide([workload], self.now)
            self.do([workload], decision)
            times.append((time.perf_counter() - start) * 1000)
            cpu.append((time.process_time() - start_cpu) * 1000)
        return sorted(times), sorted(cpu)

    def follow(self, *, closes: bool) -> float:
        """Milliseconds of CPU until the planner knows a snapshot as the loop makes it: the median of several."""
        times = []
        for turn in range(10):
            nodes = list(self.nodes)
            if closes:
                nodes[turn] = replace(nodes[turn], open=not nodes[turn].open)
            self.nodes = tuple(nodes) if closes else self.nodes
            snapshot = Snapshot(self.now, self.nodes, tuple(self.projects), self.planner.running)
            times.append(cpu_ms(lambda: self.planner.follow(snapshot, {})))  # noqa: B023 -- called at once
        return statistics.median(times)

    def cycle(self, count: int = 1000) -> float:
        """Milliseconds of CPU of a decision on so many."""
        queue = [self.session() for _ in range(count)]
        return cpu_ms(lambda: self.planner.decide(queue, self.now))

    def growth(self, count: int = 1000) -> float:
        """Milliseconds of CPU of a decision in which so many elastic gangs may grow into what others have left."""
        for running in self.random.sample(self.planner.running, min(2 * count, len(self.planner.running) // 2)):
            self.planner.remove(running.workload.id)
        queue = [replace(self.session(milli=1000), min_replicas=1, max_replicas=8) for _ in range(count)]
        decision = self.planner.decide(queue, self.now)
        begun = [each for each in queue if each.id in decision.placements]
        for each in begun:
            self.planner.add(Running(each, decision.placements[each.id], self.now, grows_at=self.now))
        first: list[Decision] = []
        took = cpu_ms(lambda: first.append(self.planner.decide([], self.now)))
        if not first[0].grown:
            raise RuntimeError(f"no gang grew: {first[0].log}")
        for each in begun:
            self.planner.remove(each.id)
        return took

    def fill_up(self, count: int = 1000) -> None:
        """Let a few projects take what is free, so that there are victims, reservations, and both together."""
        while True:
            queue = [self.session(self.projects[at % 5 + 1].name) for at in range(count)]
            if not self.do(queue, self.planner.decide(queue, self.now)):
                break

    def gangs(self, count: int = 1000, *, priorities: int = 0, grouped: bool = False) -> float:
        """Milliseconds of CPU of a decision on so many that wait long, gangs among them, beside what runs.

        With `priorities` all are of one project and have so many; `grouped` ones have a resource group a project. The
        slower counts of two decisions, of which the second goes on with whom the first one left out.
        """
        self.fill_up(count)
        queue = [self.session() for _ in range(count)]
        for at in range(0, count, 5):
            milli = self.random.choice((1000, 2000, 4000, self.gpus * 1000))
            queue[at] = replace(
                queue[at],
                replicas=self.random.randint(4, 20),
                gpu_milli=milli,
                cpu_milli=milli * 8,
                memory_mib=milli * 64,
            )
        if priorities:
            owner = self.projects[1].name
            queue = [replace(each, project=owner, priority=at % priorities) for at, each in enumerate(queue)]
        if grouped:
            queue = [replace(each, groups=(each.project,), grouped_only=True) for each in queue]
            names = [each.name for each in self.projects]
            self.planner.set_nodes(
                [replace(each, groups=(names[at % len(names)],)) for at, each in enumerate(self.nodes)]
            )
        self.now += SchedulerSettings().reserve_after_s * SECOND
        first: list[Decision] = []
        took = cpu_ms(lambda: first.append(self.planner.decide(queue, self.now)))
        goes_on = cpu_ms(lambda: self.planner.decide(queue, self.now, left_out=first[0].left_out))
        self.planner.set_nodes(self.nodes)
        return max(took, goes_on)

    def waiting(self, count: int = 1000, *, distinct: bool = False, milli: int = 0) -> float:
        """Milliseconds of CPU of a decision on so many that wait long, on the cluster that `gangs` has filled."""
        queue = [self.session(milli=milli) for _ in range(count)]
        if distinct:
            queue = [
                replace(
                    each,
                    cpu_milli=each.cpu_milli + self.random.randrange(2000),
                    memory_mib=each.memory_mib + self.random.randrange(2000),
                )
                for each in queue
            ]
        self.now += SchedulerSettings().reserve_after_s * SECOND
        return cpu_ms(lambda: self.planner.decide(queue, self.now))

    def antichain(self, count: int = 1000, project: str = "") -> float:
        """Milliseconds of CPU of a decision on so many of which none asks for as much as another of everything."""
        queue = [
            replace(self.session(project), cpu_milli=1000 + 10 * at, memory_mib=100 * count - 10 * at)
            for at in range(count)
        ]
        self.now += SchedulerSettings().reserve_after_s * SECOND
        return cpu_ms(lambda: self.planner.decide(queue, self.now))

    def reclaim(self) -> tuple[float, float]:
        """Milliseconds, and those of CPU, until a victim is named: no GPU is free, one project within its quota."""
        poor, rich = self.projects[0].name, self.projects[1].name
        for running in self.planner.running:  # it gives up what it has, and others take every GPU that is free then
            if running.workload.project == poor:
                self.planner.remove(running.workload.id)
        for milli in (self.gpus * 1000, 1000, 100):
            while True:
                queue = [self.session(rich, milli) for _ in range(1000)]
                if not self.do(queue, self.planner.decide(queue, self.now)):
                    break
        workload = self.session(poor, 1000)
        start = time.process_time()
        took, decision = timed(lambda: self.planner.decide([workload], self.now))
        of_cpu = (time.process_time() - start) * 1000
        if decision.pending_reasons[workload.id].cause is not Cause.RECLAIMING:
            raise RuntimeError(f"nobody was reclaimed: {decision.log}")
        return took, of_cpu

    def never_fits(self) -> float:
        """Milliseconds until it is told."""
        workload = self.session(milli=self.gpus * 1000 + 500)
        took, decision = timed(lambda: self.planner.decide([workload], self.now))
        if decision.pending_reasons[workload.id].cause is not Cause.NEVER_FITS:
            raise RuntimeError(f"it does not say so: {decision.log}")
        return took


def timed(action: Callable[[], Decision]) -> tuple[float, Decision]:
    """Return the milliseconds of an action and what it returned."""
    start = time.perf_counter()
    result = action()
    return (time.perf_counter() - start) * 1000, result


def cpu_ms(action: Callable[[], object]) -> float:
    """Return the milliseconds of CPU of an action."""
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1000


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=8000)
    parser.add_argument("--projects", type=int, default=50)
    parser.add_argument("--beside", action="store_true", help="projects have quotas of CPU and memory, too")
    arguments = parser.parse_args()
    bench = Bench(arguments.nodes, arguments.gpus, arguments.sessions, arguments.projects, beside=arguments.beside)
    held = len(bench.held)
    times, cpu = bench.decisions()
    figures = {  # in this order: the cluster becomes fuller
        "decision_p50_ms": times[len(times) // 2],
        "decision_p99_ms": times[len(times) * 99 // 100],
        "decision_p99_cpu_ms": cpu[len(cpu) * 99 // 100],
        "follow_unchanged_cpu_ms": bench.follow(closes=False),
        "follow_node_cpu_ms": bench.follow(closes=True),
        "cycle_1000_pending_cpu_ms": bench.cycle(),
        "cycle_gangs_cpu_ms": bench.gangs(),
        "cycle_priorities_cpu_ms": bench.gangs(priorities=100),
        "cycle_groups_cpu_ms": bench.gangs(grouped=True),
        "cycle_waiting_cpu_ms": bench.waiting(),
        "cycle_distinct_cpu_ms": bench.waiting(distinct=True),
        "cycle_quarters_cpu_ms": bench.waiting(milli=250),
        "cycle_antichain_cpu_ms": bench.antichain(),
        "cycle_antichain_of_one_cpu_ms": bench.antichain(project=bench.projects[1].name),
        "never_fits_ms": bench.never_fits(),
    }
    figures["reclaim_one_gpu_ms"], figures["reclaim_one_gpu_cpu_ms"] = bench.reclaim()
    figures["cycle_growth_cpu_ms"] = bench.growth()
    figures["rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rounded = {name: round(value, 2) for name, value in figures.items()}
    missed = [name for name, most in AIMS.items() if figures[name] > most]
    print(
        json.dumps(
            {
                "nodes": arguments.nodes,
                "gpus": arguments.gpus,
                "projects": arguments.projects,
                "sessions": held,
                **rounded,
                "aims": AIMS,
                "missed": missed,
            }
        )
    )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
