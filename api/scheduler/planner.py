"""The cluster as the scheduler keeps it between decisions, so that a decision costs only what changed.

`decide` builds one for each snapshot. A loop that runs for long keeps one, tells it of changes (`sync` finds them by
itself) and asks it to decide; both ways give the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from api.scheduler.cluster import Cluster
from api.scheduler.cycle import Cycle, State
from api.scheduler.ledger import Use
from api.scheduler.residents import Residents
from api.scheduler.shape import Verdicts
from api.scheduler.snapshot import Decision, NodeState, ProjectState, Rules, Running, Snapshot, Workload


class Planner:
    """Nodes, projects and what runs. A decision changes nothing of it: what was decided and done is told by `add`."""

    def __init__(self, nodes: Sequence[NodeState] = (), projects: Sequence[ProjectState] = ()) -> None:
        self._running: dict[str, Running] = {}
        self._leaving: dict[str, Running] = {}
        self._uses: dict[str, Use] = {}
        self._residents = Residents()
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
        """What runs, those that are leaving too."""
        return tuple(self._running.values())

    def sync(self, snapshot: Snapshot) -> None:
        """Take over nodes, projects and running workloads of a snapshot, changing only what differs."""
        if set(snapshot.nodes) != self._nodes:
            self.set_nodes(snapshot.nodes)
        self.set_projects(snapshot.projects)
        wanted = {running.workload.id: running for running in snapshot.running}
        for old in [old for old in self._running.values() if wanted.get(old.workload.id) != old]:
            self.remove(old.workload.id)
        for running in wanted.values():
            if running.workload.id not in self._running:
                self.add(running)

    def set_nodes(self, nodes: Sequence[NodeState]) -> None:
        """Replace the nodes; what runs stays."""
        self._nodes = frozenset(nodes)
        self._now, self._later = Cluster(nodes), Cluster(nodes)
        self._verdicts = Verdicts(self._now)
        for running in self._running.values():
            self._hold(running)

    def set_projects(self, projects: Sequence[ProjectState]) -> None:
        """Replace the projects."""
        self._projects = {project.name: project for project in projects}

    def add(self, running: Running) -> None:
        """A workload got its places; one that is known already is replaced (it is leaving now, for example)."""
        if running.workload.id in self._running:
            self.remove(running.workload.id)
        self._running[running.workload.id] = running
        self._hold(running)
        self._use(running).add(running.workload, leaving=running.leaving)
        if running.leaving:
            self._leaving[running.workload.id] = running
        else:
            self._residents.add(running)

    def remove(self, workload_id: str) -> None:
        """A workload is gone and its places are free."""
        running = self._running.pop(workload_id)
        self._now.free(running.placements, running.workload)
        if not running.leaving:
            self._later.free(running.placements, running.workload)
        self._use(running).add(running.workload, -1, leaving=running.leaving)
        if running.leaving:
            del self._leaving[workload_id]
        else:
            self._residents.remove(running)

    def decide(self, queue: Sequence[Workload], now: int, rules: Rules | None = None) -> Decision:
        """Return where each workload of the queue shall run, who is taken back for it, or why it waits."""
        clusters = self._now, self._later
        state = State(
            *clusters, self._residents, self._projects, self._uses, self._leaving, self._capacity(), self._verdicts
        )
        return Cycle(state, queue, now, rules or Rules()).run()

    def _capacity(self) -> int:
        """Return the milli-GPU that can be shared out: all of open nodes, and those still in use on the others."""
        layout, closed = self._now.layout, np.flatnonzero(~self._now.layout.open)
        capacity = layout.capacity[closed]
        used = np.clip(capacity - self._now.state.milli[closed], 0, capacity)
        return int(layout.capacity[layout.open].sum()) + int(used.sum())

    def _hold(self, running: Running) -> None:
        self._now.hold(running.placements, running.workload)
        if not running.leaving:
            self._later.hold(running.placements, running.workload)

    def _use(self, running: Running) -> Use:
        return self._uses.setdefault(running.workload.project, Use())
