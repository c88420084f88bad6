"""The decision: a pure, deterministic function of a snapshot. The rules are in docs/adr/, decisions 15 and 16."""

from __future__ import annotations

from api.scheduler.planner import Planner
from api.scheduler.snapshot import Decision, Snapshot


def decide(snapshot: Snapshot) -> Decision:
    """Return where each workload of the queue shall run, who is reclaimed for it, or why it waits."""
    return Planner.of(snapshot).decide(snapshot.queue, snapshot.now, snapshot.settings)
