"""The decision: a pure, deterministic function of a snapshot. The rules are in docs/adr/, decisions 15 and 16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from api.scheduler.planner import Planner
from api.scheduler.snapshot import Decision, Snapshot

T = TypeVar("T")


def decide(snapshot: Snapshot) -> Decision:
    """Return where each workload of the queue shall run, who is reclaimed for it, or why it waits."""
    return Planner.of(snapshot).decide_on(snapshot)


def failing(snapshot: Snapshot) -> str | None:
    """Return the id of a workload at which `decide` fails: the only one that runs, or the only one that waits.

    None where it does not fail at a single one. It takes about twice as many decisions as the numbers have bits.
    """
    found = _at(snapshot.running, lambda part: replace(snapshot, queue=(), running=part))
    if found:
        return found.workload.id
    waiting = _at(snapshot.queue, lambda part: replace(snapshot, queue=part))
    return waiting.id if waiting else None


def _at(items: tuple[T, ...], part_of: Callable[[tuple[T, ...]], Snapshot]) -> T | None:
    """Return the item at which decisions fail that are asked for a part of the items."""
    while len(items) > 1:
        halves = items[: len(items) // 2], items[len(items) // 2 :]
        items = next((half for half in halves if _fails(part_of(half))), ())
    return items[0] if items and _fails(part_of(items)) else None


def _fails(snapshot: Snapshot) -> bool:
    try:
        decide(snapshot)
    except Exception:
        return True
    return False
