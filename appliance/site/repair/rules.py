"""Rules of repairs: how often, of how many nodes, and which rungs of a ladder are forbidden. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from common.errors import Problem
from common.repairs import REBOOT, TRIES, WITHIN, Repair, most_unhealthy


def of_tries(repair: Repair, node: str, tries: Iterable[datetime], now: datetime) -> Problem | None:
    """Say why a repair may not be tried on a node again; `tries` are the moments at which it was."""
    # a clock that was put back has tries in the future: those far ahead would forbid all until then
    recent = sorted(moment for moment in tries if abs(now - moment) < WITHIN)
    if len(recent) < TRIES:
        return None
    again = recent[-TRIES] + WITHIN
    return Problem(
        node,
        f"{repair.id} was tried {len(recent)} times in {WITHIN.seconds // 60} minutes",
        f"look at `penstock repair history`; it may be tried again at {again:%H:%M:%S} UTC",
    )


def of_share(unhealthy: Collection[str], nodes: int, percentage: int) -> Problem | None:
    """Say why nothing may be repaired now: too many nodes are unhealthy for a cause of their own."""
    most = most_unhealthy(nodes, percentage)
    if len(unhealthy) <= most:
        return None
    return Problem(
        "repair.max_unhealthy_percentage",
        f"{len(unhealthy)} of {nodes} nodes are unhealthy, and at most {most} may be: {', '.join(sorted(unhealthy))}",
        "look for the cause that they have in common, such as a switch; or raise it in the site file and deploy",
    )


def forbidden(repair: Repair, *, reboot: bool, sessions: Sequence[str] | None, agreed: bool) -> dict[str, str]:
    """Return the rungs that a ladder must not climb on a node, and why.

    `reboot` is what the site allows, `sessions` run on the node, None where that is not known; `agreed` says that they
    may be ended.
    """
    if REBOOT not in repair.rungs:
        return {}
    if not reboot:
        return {REBOOT: "the site allows no reboot. Hint: set `repair.reboot: true` in the site file and deploy"}
    if sessions is None and not agreed:
        return {REBOOT: "Docker does not say which sessions a reboot would end. Hint: run it with --yes to end any"}
    if sessions and not agreed:
        return {REBOOT: f"a reboot would end {', '.join(sessions)}. Hint: drain the node, or run it with --yes"}
    return {}
