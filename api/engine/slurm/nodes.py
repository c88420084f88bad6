"""Nodes of Slurm: which of them take no jobs, and why, and what is taken of each. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from api.engine.launcher import Held

_WIDTHS = {"NodeList": 65, "CPUsState": 40, "AllocMem": 20, "Available": 20, "StateLong": 40, "Reason": 400}
COLUMNS = ",".join(f"{name}:{width}" for name, width in _WIDTHS.items())
"""Name, cores that are allocated, idle and otherwise, MiB that are allocated, state of the partition, that of the node
and the reason that somebody gave for it (man page of sinfo).
"""
OPEN = "up"
"""The state of a partition that takes jobs."""
TAKES_JOBS = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
_WITH_JOBS = "+-"
"""Marks behind a state that keep no job away: some jobs complete there, or backfill has plans for it."""
_SILENT = "*"
SILENT = "Not responding"
"""What Slurm itself says of a node that is down because it does not answer."""


@dataclass(frozen=True)
class SlurmNode:
    """A node: `why` it takes no jobs, empty where it does, and what all jobs hold of it."""

    why: str
    held: Held


def read(listing: str) -> dict[str, SlurmNode]:
    """Return the nodes by their names, from a listing with a line for each.

    One that does not answer has a mark behind its state, and takes none. The first line of a name counts: reasons may
    have lines of their own, which are none of a node.
    """
    found: dict[str, SlurmNode] = {}
    for line in listing.splitlines():
        name, cores, memory, partition, state, reason = _columns(line)
        allocated = cores.partition("/")[0]
        if state and allocated.isdecimal() and memory.isdecimal():
            held = Held(int(allocated) * 1000, int(memory))
            found.setdefault(name, SlurmNode(_why(partition, state, reason), held))
    return found


def _columns(line: str) -> list[str]:
    found, begin = [], 0
    for width in _WIDTHS.values():
        found.append(line[begin : begin + width].strip())
        begin += width
    return found


def _why(partition: str, state: str, reason: str) -> str:
    if partition != OPEN:
        return f"Slurm: its partition is {partition}"
    if state.rstrip(_WITH_JOBS) in TAKES_JOBS:
        return ""
    if reason in ("", "none"):
        # nobody gives a reason before the node is down
        reason = SILENT if state.endswith(_SILENT) else ""
    return f"Slurm: {state} ({reason})" if reason else f"Slurm: {state}"
