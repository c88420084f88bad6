"""Planner: the cluster as the scheduler keeps it between decisions, so that a decision costs only what changed.

`decide` builds one for each snapshot. A loop that runs for long keeps one, tells it of changes (`sync` finds them by
itself) and asks it to decide; both ways give the same decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from api.scheduler.claims import Claim
from api.scheduler.cluster import ClusterState
from api.scheduler.cycle import Cycle
from api.scheduler.draft import Before, PlannerState
from api.scheduler.elastic import parts
from api.scheduler.feasibility import Feasibility, OpenNodes
from api.scheduler.holdings import Amounts, Holdings
from api.scheduler.residents import Residents
from api.scheduler.snapshot import (
    Decision,
    DomainState,
    Networks,
    NodeSnapshot,
    Placement,
    ProjectState,
    Resource,
    Running,
    SchedulerSettings,
    Snapshot,
    Workload,
)


class Planner:
    """Nodes, projects and what runs. A decision changes nothing of it: what was decided and done is told by `add`."""

    def __init__(self, nodes: Sequence[NodeSnapshot] = (), projects: Sequence[ProjectState] = ()) -> None:
        self._running: dict[str, Running] = {}
        self._terminating: dict[str, Running] = {}
        self._growing: dict[str, Running] = {}
        self._holdings: dict[str, Holdings] = {}
        self._beside: dict[Resource, dict[str, Amounts]] = {resource: {} for resource in Resource}
        self._residents = Residents()
        self._nodes: Sequence[NodeSnapshot] = ()
        self._now, self._later = ClusterState(()), ClusterState(())
        self._feasibility, self._open_nodes = Feasibility(self._now), OpenNodes(self._now)
        self.claims: tuple[Claim, ...] = ()
        """What the last decision keeps for those that wait."""
        self.set_nodes(nodes)
        self.set_projects(projects)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Planner:
        """Return one that knows what the snapshot does."""
        planner = cls(snapshot.nodes, snapshot.projects)
        planner.sync(snapshot)
        return planner

    @property
    def running(self) -> tuple[Running, ...]:
        """What runs, those that are terminating too."""
        return tuple(self._running.values())

    def sync(self, snapshot: Snapshot) -> None:
        """Take over nodes, projects and running workloads of a snapshot, changing only what differs."""
        wanted = {running.workload.id: running for running in snapshot.running}
        gone = {id_: None for id_ in self._running if id_ not in wanted}
        self.follow(snapshot, gone | {id_: each for id_, each in wanted.items() if self._running.get(id_) != each})

    def follow(self, snapshot: Snapshot, changes: Mapping[str, Running | None]) -> None:
        """Take over a snapshot of which only these running workloads differ from the last one; None is gone."""
        self.set_nodes(snapshot.nodes)
        self.set_projects(snapshot.projects, snapshot.domains)
        # what has changed leaves its places before others get them
        for workload_id in changes:
            if workload_id in self._running:
                self.remove(workload_id)
        for running in changes.values():
            if running:
                self.add(running)

    def set_nodes(self, nodes: Sequence[NodeSnapshot]) -> None:
        """Replace the nodes; what runs stays. Where they only open or close nothing is counted anew."""
        if nodes is self._nodes:
            return
        if not (self._now.replace(nodes) and self._later.replace(nodes)):
            self._now, self._later = ClusterState(nodes), ClusterState(nodes)
            self._feasibility = Feasibility(self._now)
            for part in (part for running in self._running.values() for part in parts(running)):
                self._allocate(part)
        self._open_nodes = OpenNodes(self._now)
        self._nodes = nodes

    def set_projects(self, projects: Sequence[ProjectState], domains: Sequence[DomainState] = ()) -> None:
        """Replace the projects, and the domains that share."""
        self._projects = {project.name: project for project in projects}
        self._domains = {domain.name: domain for domain in domains}

    def add(self, running: Running) -> None:
        """A workload got its places; one that is known already is replaced (it is terminating now, for example)."""
        if running.workload.id in self._running:
            self.remove(running.workload.id)
        self._running[running.workload.id] = running
        if running.grows_at:
            self._growing[running.workload.id] = running
        for part in parts(running):
            self._allocate(part)
            self._count(part, 1)
            if part.terminating:
                self._terminating[part.workload.id] = part
            else:
                self._residents.add(part)

    def remove(self, workload_id: str) -> None:
        """A workload is gone and its places are free."""
        running = self._running.pop(workload_id)
        self._growing.pop(workload_id, None)
        for part in parts(running):
            self._now.release(part.placements, part.workload)
            if not part.terminating:
                self._later.release(part.placements, part.workload)
            self._count(part, -1)
            if part.terminating:
                del self._terminating[part.workload.id]
            else:
                self._residents.remove(part)

    def decide(
        self,
        queue: Sequence[Workload],
        now: int,
        settings: SchedulerSettings | None = None,
        reservations: Mapping[str, tuple[Placement, ...]] | None = None,
        nominated: Collection[str] = (),
        *,
        left_out: Collection[str] = (),
        networks: Networks | None = None,
    ) -> Decision:
        """Return where each workload of the queue shall run, who is reclaimed for it, or why it waits.

        `reservations` are those of the decision before, `nominated` who was nominated then, and `left_out` for whom no
        victims were looked for. `networks` are those between containers of a session; None: as many as anybody wants.
        """
        state = PlannerState(
            self._now,
            self._later,
            self._residents,
            self._projects,
            self._holdings,
            self._beside,
            self._terminating,
            self.capacity(),
            self._feasibility,
            self._open_nodes,
            self._growing,
            self._domains,
            networks,
        )
        before = Before(reservations or {}, frozenset(nominated), frozenset(left_out))
        cycle = Cycle(state, queue, now, settings or SchedulerSettings(), before)
        decision = cycle.run()
        self.claims = cycle.claims.every()
        return decision

    def decide_on(self, snapshot: Snapshot) -> Decision:
        """Return the same of a snapshot of which nodes, projects and what runs are known already."""
        return self.decide(
            snapshot.queue,
            snapshot.now,
            snapshot.settings,
            snapshot.reservations,
            snapshot.nominated,
            left_out=snapshot.left_out,
            networks=snapshot.networks,
        )

    def marks(self) -> object:
        """Return what tells what it knows of the cluster from anything else: a decision that fails may change it."""
        return self._now.marks(), self._later.marks()

    def capacity(self) -> int:
        """Return the milli-GPU that can be shared out: all of open nodes, and those still in use on the others."""
        layout, closed = self._now.layout, np.flatnonzero(~self._now.layout.open)
        capacity = np.maximum(layout.capacity[closed] - layout.orphaned[closed], 0)
        used = np.clip(capacity - self._now.state.milli[closed], 0, capacity)
        return int(layout.shared_of_node[layout.open].sum()) + int(used.sum())

    def _allocate(self, running: Running) -> None:
        self._now.allocate(running.placements, running.workload)
        if not running.terminating:
            self._later.allocate(running.placements, running.workload)

    def _count(self, running: Running, sign: int) -> None:
        """Count what its project holds by a workload, or with -1 count it no more."""
        workload, terminating = running.workload, running.terminating
        holdings = self._holdings.setdefault(workload.project, Holdings())
        holdings.add(workload, sign, terminating=terminating)
        for resource, of in self._beside.items():
            amounts = of.setdefault(workload.project, Amounts())
            amounts.count(sign * workload.amount(resource), preemptible=workload.preemptible, terminating=terminating)
