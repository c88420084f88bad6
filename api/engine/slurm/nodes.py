"""Nodes of Slurm: which of them take no jobs, and why. Pure."""

from __future__ import annotations

FORMAT = "%N|%T|%E"
"""Name, state and the reason that somebody gave for it (man page of sinfo)."""
TAKES_JOBS = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
_WITH_JOBS = "+-"
"""Marks behind a state that keep no job away: some jobs complete there, or backfill has plans for it."""


def withheld(listing: str) -> dict[str, str]:
    """Return why nodes take no jobs, by their names, from a listing with a line for each node and partition.

    One that does not answer has a mark behind its state, and takes none.
    """
    found = {}
    for line in listing.splitlines():
        name, _, rest = line.partition("|")
        state, _, reason = rest.partition("|")
        if state and state.rstrip(_WITH_JOBS) not in TAKES_JOBS:
            found[name] = f"Slurm: {state}" if reason in ("", "none") else f"Slurm: {state} ({reason})"
    return found
