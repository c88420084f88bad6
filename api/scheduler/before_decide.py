"""The decision: a pure, deterministic function of a snapshot.

The queue is served in the order of submission. A session that its project's quota does not allow steps aside. The
first session that no node has room for reserves the node that comes nearest to it, so that smaller ones behind it
cannot keep it waiting for ever; they may use the other nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from api.scheduler.before_placement import largest_free, place
from api.scheduler.before_snapshot import Decision, GpuState, NodeState, Placement, ProjectState, Snapshot, Waiting
from appliance.gpu.share import MILLI, format_gpus


def decide(snapshot: Snapshot) -> Decision:
    """Return where each session of the queue shall run, or why it waits."""
    cluster = _Cluster(
        {node.name: node for node in sorted(snapshot.nodes, key=lambda node: node.name)},
        {project.name: project for project in snapshot.projects},
    )
    placements: dict[str, Placement] = {}
    reasons: dict[str, str] = {}
    for waiting in sorted(snapshot.queue, key=lambda item: (item.created_at, item.id)):
        reason = cluster.refusal(waiting)
        placement = None if reason else cluster.place(waiting)
        if placement:
            placements[waiting.id] = placement
        else:
            reasons[waiting.id] = reason or cluster.shortage(waiting, len(reasons))
    return Decision(placements, reasons)


def gpus(milli: int) -> str:
    """Return a share with its unit."""
    return f"{format_gpus(milli)} GPU{'s' if milli > MILLI else ''}"


@dataclass
class _Cluster:
    """What is free while the queue is served."""

    nodes: dict[str, NodeState]
    projects: dict[str, ProjectState]
    reserved: str | None = None

    def refusal(self, waiting: Waiting) -> str:
        """Return why the quota does not allow the session, or nothing."""
        project = self.projects[waiting.project]
        if project.used_milli + waiting.gpu_milli <= project.quota_milli:
            return ""
        held = f"{project.name} holds {format_gpus(project.used_milli)} of its {gpus(project.quota_milli)}"
        if waiting.gpu_milli > project.quota_milli:
            return f"{held}; this session asks for {gpus(waiting.gpu_milli)}, more than the whole quota"
        return held

    def place(self, waiting: Waiting) -> Placement | None:
        """Give the session its place and note what is left."""
        open_nodes = [node for node in self.nodes.values() if node.name != self.reserved]
        placement = place(open_nodes, waiting.gpu_milli)
        if placement is None:
            return None
        node, project = self.nodes[placement.node], self.projects[waiting.project]
        given = {share.uuid: share.milli for share in placement.shares}
        self.nodes[node.name] = replace(
            node, gpus=tuple(_use(gpu, given.get(gpu.uuid, 0)) for gpu in node.gpus), sessions=node.sessions + 1
        )
        self.projects[project.name] = replace(project, used_milli=project.used_milli + waiting.gpu_milli)
        return placement

    def shortage(self, waiting: Waiting, ahead: int) -> str:
        """Return what is missing; the first session that finds no room reserves a node."""
        position = f"; position {ahead + 1} in the queue" if ahead else ""
        if not self.nodes:
            return f"no node is ready{position}"
        kept = self.nodes.get(self.reserved or "")
        if kept and place([kept], waiting.gpu_milli):
            return f"{kept.name} is kept for a session that waits longer{position}"
        if self.reserved is None:
            self.reserved = self._nearest(waiting.gpu_milli)
        largest = max(self.nodes.values(), key=largest_free)
        free = largest_free(largest)
        piece = f"largest free piece is {gpus(free)} on {largest.name}" if free else "every GPU is in use"
        return f"no node has {gpus(waiting.gpu_milli)} free; {piece}{position}"

    def _nearest(self, milli: int) -> str | None:
        """Return the node that could hold the share when it is empty, and has the most free of it now."""
        able = [node for node in self.nodes.values() if len(node.gpus) * MILLI >= milli]
        nearest = max(able, key=lambda node: sum(gpu.free_milli for gpu in node.gpus), default=None)
        return nearest.name if nearest else None


def _use(gpu: GpuState, milli: int) -> GpuState:
    return replace(gpu, used_milli=gpu.used_milli + milli) if milli else gpu
