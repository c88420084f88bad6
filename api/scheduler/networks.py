"""Networks between the containers of sessions: who has one kept in a decision, where there are no more than so many."""

from __future__ import annotations

from api.scheduler.snapshot import Networks, Workload
from common.sentence import Sentence


class NetworksLeft:
    """The networks that are free: one for each gang that starts, or has places kept, in the order of the decision."""

    def __init__(self, networks: Networks | None) -> None:
        """Begin with all that are free; None is as many as anybody wants."""
        self._networks = networks
        self._kept: set[str] = set()

    def lacking(self, workload: Workload) -> str:
        """Return why there is none for the workload, or nothing."""
        if self._networks is None or not workload.needs_network or workload.id in self._kept:
            return ""
        return "" if len(self._kept) < self._networks.free else all_taken(self._networks.count)

    def keep(self, workload: Workload) -> None:
        """Keep one for the workload, if it needs any."""
        if workload.needs_network:
            self._kept.add(workload.id)

    def release(self, workload: Workload) -> None:
        """Keep none for it any more."""
        self._kept.discard(workload.id)


def all_taken(count: int) -> str:
    """Return that all networks of the site are taken, for people."""
    return Sentence(
        "all {count} networks between containers of a session are taken or kept for others; an administrator may "
        "give more room",
        count=count,
    )
