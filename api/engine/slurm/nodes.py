"""Nodes of Slurm: which of them take no jobs, and why. Pure."""

from __future__ import annotations

FORMAT = "%N|%T|%E"
"""Name, state and the reason that somebody gave for it (man page of sinfo)."""
TAKES_JOBS = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
_WITH_JOBS = "+-"
"""Marks behind a state that keep no job away: some jobs complete there, or backfill has plans for it."""


def read(listing: str) -> dict[str, str]:
    """Return why nodes take no jobs, or nothing for those that do, by their names, from a listing with a line for each.

    One that does not answer has a mark behind its state, and takes none. The first line of a name counts: reasons may
    have lines of their own.
    """
    found: dict[str, str] = {}
    for line in listing.splitlines():
        name, _, rest = line.partition("|")
        state, _, reason = rest.partition("|")
        if state:
            found.setdefault(name, _why(state, reason))
    return found


def _why(state: str, reason: str) -> str:
    if state.rstrip(_WITH_JOBS) in TAKES_JOBS:
        return ""
    return f"Slurm: {state}" if reason in ("", "none") else f"Slurm: {state} ({reason})"
