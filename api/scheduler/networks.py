"""Networks between the containers of sessions: who has one kept in a decision, where there are no more than so many."""

from __future__ import annotations

from api.scheduler.snapshot import Networks, Workload
from common.sentence import Sentence


class NetworksLeft:
    """The networks that are free: one for each gang that starts, or has places kept, in the order of the decision.

    Ranks tell who passes over what is kept for whom: the lower goes first.
    """

    def __init__(self, networks: Networks | None) -> None:
        """Begin with all that are free; None is as many as anybody wants."""
        self._networks = networks
        self._kept: dict[str, int] = {}
        self._ahead: dict[str, int] = {}

    @property
    def are_few(self) -> bool:
        """Whether there may be none for somebody."""
        return self._networks is not None

    def lacking(self, workload: Workload, rank: int) -> str:
        """Return why there is none for the workload, or nothing."""
        if self._networks is None or not workload.needs_network or workload.id in self._kept:
            return ""
        before = sum(kept <= rank for kept in self._kept.values())
        return "" if before < self._networks.free else all_taken(self._networks.count)

    def keep(self, workload: Workload, rank: int = 0) -> None:
        """Keep one for the workload, if it needs any; who had the last one by a lesser rank loses it."""
        if not workload.needs_network:
            return
        self._kept[workload.id] = rank
        if self._networks and len(self._kept) > self._networks.free:
            last = max(reversed(self._kept), key=self._kept.__getitem__)
            if self._kept[last] > rank:
                self._forget(last)

    def keep_ahead(self, workload: Workload, rank: int) -> None:
        """Keep one for a workload that cannot begin yet, unless there is such a one already of that rank or before."""
        if workload.needs_network and all(other > rank for other in self._ahead.values()):
            self._ahead[workload.id] = rank
            self.keep(workload, rank)

    def release(self, workload: Workload) -> None:
        """Keep none for it any more."""
        self._forget(workload.id)

    def _forget(self, id_: str) -> None:
        self._kept.pop(id_, None)
        self._ahead.pop(id_, None)


def all_taken(count: int) -> str:
    """Return that all networks of the site are taken, for people."""
    return Sentence.counted(
        "the network between containers of a session is taken or kept for others; an administrator may give more room",
        "all {count} networks between containers of a session are taken or kept for others; an administrator may "
        "give more room",
        count,
    )
