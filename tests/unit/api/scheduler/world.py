"""A tiny cluster that does what the scheduler decides: the helper of its tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from api.scheduler.decide import decide
from api.scheduler.elastic import one_more, ranks_of
from api.scheduler.snapshot import (
    Decision,
    GpuState,
    Networks,
    NodeSnapshot,
    Placement,
    ProjectState,
    Resource,
    Running,
    SchedulerSettings,
    Snapshot,
    Workload,
    taking,
)
from common.gpu.kinds import Enforcement
from common.gpu.share import GpuShare

SECOND = 1_000_000


def node(name: str, gpus: int = 8, *, island: int = 16, **more: object) -> NodeSnapshot:
    """A node with so many GPUs, in islands of so many."""
    states = tuple(GpuState(index, f"{name}-{index}", island=index // island) for index in range(gpus))
    return NodeSnapshot(name, states, **more)  # type: ignore[arg-type]


def sliced(name: str, *sizes: int, gpus: int = 0, held: Enforcement = Enforcement.SHIM, **more: object) -> NodeSnapshot:
    """A node with some whole GPUs, and a slice for each size."""
    whole = tuple(GpuState(at, f"{name}-{at}", "A100", enforcement=held) for at in range(gpus))
    cut = tuple(
        GpuState(gpus + at, f"{name}-{gpus + at}", "A100", enforcement=Enforcement.MIG, capacity_milli=size, slice=True)
        for at, size in enumerate(sizes)
    )
    return NodeSnapshot(name, whole + cut, **more)  # type: ignore[arg-type]


def project(name: str, gpus: float, **more: object) -> ProjectState:
    """A project with a quota of so many GPUs."""
    return ProjectState(name, round(gpus * 1000), **more)  # type: ignore[arg-type]


def work(id_: str, owner: str, gpus: float = 1, at: int = 0, **more: object) -> Workload:
    """A workload with so many GPUs a container, submitted at this second."""
    return Workload(id_, owner, at * SECOND, id_, gpu_milli=round(gpus * 1000), **more)  # type: ignore[arg-type]


def on(where: str, *shares: float) -> Placement:
    """A placement on a node: the part of each of its GPUs in order, 0 for one that it does not use."""
    return Placement(
        where,
        tuple(GpuShare(f"{where}-{index}", index, round(part * 1000)) for index, part in enumerate(shares) if part),
    )


def runs(workload: Workload, *placements: Placement, since: int = 0, terminating: bool = False) -> Running:
    """A workload that runs since this second."""
    return Running(workload, placements, since * SECOND, terminating)


@dataclass
class World:
    """Nodes, projects, and what became of the workloads. A second passes with each step.

    Where there are no more than so many `networks`, a gang has one until it is gone.
    """

    nodes: tuple[NodeSnapshot, ...]
    projects: tuple[ProjectState, ...]
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    now: int = 0
    queue: dict[str, Workload] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    terminating: set[str] = field(default_factory=set)
    decisions: list[Decision] = field(default_factory=list)
    networks: int | None = None

    def snapshot(self) -> Snapshot:
        """What the scheduler sees now."""
        return Snapshot(
            self.now * SECOND,
            self.nodes,
            self.projects,
            tuple(self.running.values()),
            tuple(self.queue.values()),
            self.settings,
            self.decisions[-1].reservations if self.decisions else {},
            self.decisions[-1].nominated if self.decisions else (),
            networks=self._networks(),
            left_out=self.decisions[-1].left_out if self.decisions else (),
        )

    def _networks(self) -> Networks | None:
        if self.networks is None:
            return None
        gangs = sum(each.workload.needs_network for each in self.running.values())
        return Networks(self.networks, max(0, self.networks - gangs))

    def submit(self, *workloads: Workload) -> None:
        """Put workloads into the queue."""
        self.queue.update({workload.id: workload for workload in workloads})

    def delete(self, *ids: str) -> None:
        """Stop running workloads for good; they end within the next step."""
        for id_ in ids:
            self.running[id_] = replace(self.running[id_], terminating=True)
            self.terminating.add(id_)

    def decide(self, snapshot: Snapshot) -> Decision:
        """The decision on what is now."""
        return decide(snapshot)

    def step(self) -> Decision:
        """Decide once and do it; who left before frees its places, and goes back to the queue if it was reclaimed."""
        decision = self.decide(self.snapshot())
        check(self.snapshot(), decision)
        left = [id_ for id_, running in self.running.items() if running.terminating]
        for id_, places in decision.placements.items():
            workload = self.queue.pop(id_)
            ends_at = (self.now + workload.limit_s) * SECOND if workload.limit_s else 0
            grows_at = max(1, self.now * SECOND) if workload.is_elastic else 0
            taken = taking(workload, places)
            self.running[id_] = Running(taken, places, self.now * SECOND, ends_at=ends_at, grows_at=grows_at)
        shrunk = {id_: running for id_, running in self.running.items() if running.leaving and not running.terminating}
        for id_, running in shrunk.items():
            self.running[id_] = of_ranks(
                running, {r: p for r, p in by_rank(running).items() if r not in running.leaving}
            )
        for id_, more in decision.grown.items():
            running = self.running[id_]
            self.running[id_] = of_ranks(running, {**by_rank(running), **more})
        for reclaim in decision.reclaims:
            victim = self.running[reclaim.victim]
            workload = victim.workload
            if reclaim.ranks:
                self.running[reclaim.victim] = replace(victim, leaving=(*victim.leaving, *reclaim.ranks))
                continue
            if reclaim.moved:
                workload = replace(workload, moves=workload.moves + 1, moved_at=self.now * SECOND)
            self.running[reclaim.victim] = replace(victim, workload=workload, terminating=True)
        for id_ in left:
            gone = self.running.pop(id_)
            if id_ not in self.terminating:
                self.queue[id_] = to_wait(gone.workload, self.now)
        self.now += 1
        self.decisions.append(decision)
        return decision

    def settle(self, limit: int = 50) -> list[str]:
        """Step until nothing changes any more; return who was reclaimed on the way."""
        victims: list[str] = []
        for _ in range(limit):
            terminating = any(running.terminating or running.leaving for running in self.running.values())
            decision = self.step()
            victims += [reclaim.victim for reclaim in decision.reclaims]
            if not (decision.placements or decision.reclaims or decision.grown or terminating):
                return victims
        raise AssertionError(f"nothing settles within {limit} steps: {self.decisions[-1].log}")

    def held(self) -> dict[str, int]:
        """What each project holds, in milli-GPU."""
        return held(self.running.values(), self.projects)


def by_rank(running: Running) -> dict[int, Placement]:
    """The places of its containers."""
    return dict(zip(ranks_of(running), running.placements, strict=True))


def of_ranks(running: Running, places: Mapping[int, Placement]) -> Running:
    """The same session with these containers."""
    ranks = sorted(places)
    found = [places[rank] for rank in ranks]
    workload = taking(replace(running.workload, replicas=len(ranks), held_milli=0), found)
    return replace(running, workload=workload, placements=tuple(found), ranks=tuple(ranks), leaving=())


def to_wait(workload: Workload, now: int) -> Workload:
    """A session that is back in the queue: an elastic one asks for its least again, and nobody holds anything."""
    replicas = workload.min_replicas if workload.is_elastic else workload.replicas
    return replace(workload, requeued_at=now * SECOND, replicas=replicas, held_milli=0)


def held(running: Iterable[Running], projects: Iterable[ProjectState]) -> dict[str, int]:
    """Sum up what each project holds."""
    total = Counter({item.name: 0 for item in projects})
    for each in running:
        total[each.workload.project] += each.workload.total_milli
    return dict(total)


def check(snapshot: Snapshot, decision: Decision) -> None:
    """Assert what holds for every decision, whatever the cluster."""
    queued = {workload.id: workload for workload in snapshot.queue}
    running = {each.workload.id: each for each in snapshot.running}
    quota = {item.name: item for item in snapshot.projects}
    assert set(decision.placements) | set(decision.pending_reasons) == set(queued), "every workload is placed or waits"
    assert not set(decision.placements) & set(decision.pending_reasons)
    assert all(wait.reason for wait in decision.pending_reasons.values()), "whoever waits is told why"
    assert sorted(wait.position for wait in decision.pending_reasons.values()) == list(
        range(1, len(decision.pending_reasons) + 1)
    )
    more = [(running[id_], rank, place) for id_, of in decision.grown.items() for rank, place in of.items()]
    grown = [Running(one_more(each, rank), (place,), snapshot.now) for each, rank, place in more]
    lines = len(queued) + len(decision.reclaims) + len(grown)
    assert len(decision.log) == lines, "one line for each decision"
    check_grown(running, decision)

    placed = [Running(queued[id_], places, snapshot.now) for id_, places in decision.placements.items()]
    check_room(snapshot.nodes, running.values(), [*placed, *grown])
    gangs = sum(each.workload.needs_network for each in placed)
    assert snapshot.networks is None or gangs <= snapshot.networks.free, "each gang has a network"
    for each in [*placed, *grown]:
        limits = quota[each.workload.project]
        mine = [item.workload for item in (*running.values(), *placed, *grown) if item.workload.project == limits.name]
        if each.workload.total_milli and not limits.over_quota:
            assert sum(item.total_milli for item in mine) <= limits.quota_milli, "a hard cap holds"
        if each.workload.total_milli and limits.limit_milli is not None:
            assert sum(item.total_milli for item in mine) <= limits.limit_milli, "a limit holds"
        if each.workload.total_milli and not each.workload.preemptible:
            fixed = sum(item.total_milli for item in mine if not item.preemptible)
            assert fixed <= limits.quota_milli, "work that cannot be reclaimed lives within the quota"

    retained = held([each for each in running.values() if not each.terminating], snapshot.projects)
    taken = Counter((each.victim, rank) for each in decision.reclaims for rank in each.ranks or ("all",))
    assert not taken or max(taken.values()) == 1, "nobody is taken twice"
    assert sum(reclaim.moved for reclaim in decision.reclaims) <= snapshot.settings.moves_per_hour
    for reclaim in decision.reclaims:
        victim, beneficiary = running[reclaim.victim].workload, queued[reclaim.beneficiary]
        assert not running[reclaim.victim].terminating, "who is terminating is not reclaimed again"
        assert victim.preemptible, "only what may be reclaimed is"
        own = quota[victim.project].min_runtime_s
        least = snapshot.settings.min_runtime_s if own is None else own
        assert abs(snapshot.now - running[reclaim.victim].since) >= least * SECOND
        assert reclaim.beneficiary in decision.pending_reasons, "who gets the room waits until it is free"
        if reclaim.moved:
            assert reclaim.victim in decision.reservations, "who is moved has places elsewhere"
            assert victim.moves < snapshot.settings.moves_per_session
        elif victim.project == beneficiary.project:
            assert reclaim.ranks or victim.priority < beneficiary.priority
        else:
            beyond = retained[victim.project] + _placed_of(placed, victim.project) > quota[victim.project].quota_milli
            is_guest = not victim.total_milli and (
                beneficiary.total_milli or _is_beyond_beside(snapshot, placed, victim, quota[victim.project])
            )
            assert beyond or is_guest, "a project within its quota never loses"


def check_grown(running: Mapping[str, Running], decision: Decision) -> None:
    """Assert what holds for the containers that gangs get and lose while they run."""
    shrunk = {each.victim: each.ranks for each in decision.reclaims if each.ranks}
    assert not {each.victim for each in decision.reclaims} & decision.grown.keys(), "who shrinks does not grow"
    for id_, ranks in shrunk.items():
        assert min(ranks) >= running[id_].workload.min_replicas > 0, "the first containers stay together"
        assert set(ranks) <= set(ranks_of(running[id_])) - set(running[id_].leaving)
    for id_, places in decision.grown.items():
        each = running[id_]
        is_whole = not each.terminating and not each.leaving
        assert is_whole, "who shrinks or ends does not grow"
        assert not set(places) & set(ranks_of(each)), "those that are there keep their ranks"
        assert max(places) < each.workload.max_replicas


def check_begins_among_small_ones(world: World, id_: str, owner: str) -> None:
    """Small ones of its project come in a stream and end one after another: what waits must not starve for them."""
    for at in range(100):
        world.submit(*(work(f"s{at}-{turn}", owner, 1, world.now) for turn in range(2)))
        world.step()
        world.delete(*[other for other, each in sorted(world.running.items()) if not each.terminating][:1])
        if id_ in world.running:
            return
    raise AssertionError(f"starved: {world.decisions[-1].pending_reasons[id_]}")


def _is_beyond_beside(snapshot: Snapshot, placed: Iterable[Running], victim: Workload, owner: ProjectState) -> bool:
    """Whether work without GPUs is beyond a quota of CPU or memory of its project, or asks for nothing of these."""
    mine = [each.workload for each in (*snapshot.running, *placed) if not each.terminating]
    mine = [item for item in mine if item.project == owner.name]
    asked = {each: bounds for each in Resource if victim.amount(each) and (bounds := owner.bounds(each))}
    return not asked or any(sum(item.amount(each) for item in mine) > bounds.quota for each, bounds in asked.items())


def _placed_of(placed: Iterable[Running], name: str) -> int:
    return sum(each.workload.total_milli for each in placed if each.workload.project == name)


def check_room(nodes: Iterable[NodeSnapshot], running: Iterable[Running], placed: Iterable[Running]) -> None:
    """Assert that what is placed fits beside what runs: GPUs, CPU, memory, gangs, nothing whole and shared at once."""
    known = {item.name: item for item in nodes}
    parts: dict[tuple[str, str], list[int]] = {}
    cpu: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    touched: set[str] = set()
    for new, each in [*((False, each) for each in running), *((True, each) for each in placed)]:
        workload = each.workload
        if new:
            assert len(each.placements) == workload.replicas, "a gang starts as a whole"
        for placement in each.placements:
            cpu[placement.node] += workload.cpu_milli
            memory[placement.node] += workload.memory_mib
            for share in placement.shares:
                parts.setdefault((placement.node, share.uuid), []).append(share.milli)
            if not new:
                continue
            touched.add(placement.node)
            home = known[placement.node]
            assert home.open, "a closed node takes nothing new"
            milli = [share.milli for share in placement.shares]
            slices = {gpu.uuid: gpu.capacity_milli for gpu in home.gpus if gpu.slice}
            if cut := [share for share in placement.shares if share.uuid in slices]:
                assert milli == [slices[cut[0].uuid]], "a slice goes whole to one container, and alone"
                assert workload.gpu_milli <= milli[0] < 1000
            else:
                assert sum(milli) == workload.gpu_milli, "a container gets exactly its share"
            assert sum(1 for part in milli if part < 1000) <= 1
            assert {share.uuid for share in placement.shares} <= {gpu.uuid for gpu in home.gpus}
    for shares in parts.values():
        assert sum(shares) <= 1000, "no GPU is given away twice, whole and shared at once least of all"
    for name in touched:
        assert not known[name].cpu_milli or cpu[name] <= known[name].cpu_milli
        assert not known[name].memory_mib or memory[name] <= known[name].memory_mib
