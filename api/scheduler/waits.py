"""Pending reasons: why a workload waits and what would help, and the words of the decision log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.scheduler.cluster import Cluster
from api.scheduler.ledger import Ledger
from api.scheduler.shape import Shape, shape
from api.scheduler.snapshot import Cause, Placement, Running, Wait, Workload
from api.scheduler.topology import allowed
from api.scheduler.verdict import gpus, held_by

NAMED = 3
"""So many are named in a sentence; the others are counted."""

Places = Sequence[Placement]
Kept = tuple[Workload, tuple[Placement, ...]]


@dataclass(frozen=True)
class Waiting:
    """A workload that was served and waits, with what was known then.

    `never` is why it can never run, `refusal` why its project may not have it now, `beyond` says more than its fair
    share. `reserved` or `promised` are the places kept for it; `leaving` names those who still hold the latter.
    """

    workload: Workload
    never: str = ""
    refusal: str = ""
    beyond: str = ""
    reserved: Places = ()
    promised: Places = ()
    leaving: str = ""


def explain(cluster: Cluster, waiting: Sequence[Waiting], kept: Collection[Kept]) -> dict[str, Wait]:
    """Return why each of them waits, in the order in which they were served."""
    rooms = _Rooms(cluster, kept)
    found: dict[str, Wait] = {}
    for position, item in enumerate(waiting, start=1):
        cause, reason = _cause(item, rooms)
        found[item.workload.id] = Wait(cause, reason, position)
    return found


def line(item: Waiting, explained: Mapping[str, Wait]) -> str:
    """Return the line of the log."""
    return f"waits: {title(item.workload)}: {explained[item.workload.id].reason}"


def _cause(item: Waiting, rooms: _Rooms) -> tuple[Cause, str]:
    """Return the first cause that holds, from the one that never changes to the one that may pass any moment."""
    workload = item.workload
    if item.never:
        return Cause.NEVER_FITS, item.never
    if item.promised:
        return Cause.RECLAIMING, f"{item.leaving} still being stopped; {nodes(item.promised)} is kept for it"
    if item.refusal:
        return Cause.QUOTA, item.refusal
    return _no_room(item, rooms) if rooms.has_node(workload) else (Cause.NO_NODE, rooms.no_node(workload))


def _no_room(item: Waiting, rooms: _Rooms) -> tuple[Cause, str]:
    missing = rooms.missing(item.workload)
    if item.reserved:
        return Cause.NO_ROOM, f"{missing}; {nodes(item.reserved)} is kept for it until it is free"
    holder = rooms.holder(item.workload)
    if holder:
        return Cause.RESERVED, f"the room that is free is kept for {holder}, which is served first"
    return (Cause.FAIR_SHARE, f"{missing}; {item.beyond}") if item.beyond else (Cause.NO_ROOM, missing)


class _Rooms:
    """What is free at the end of a decision; asked once for all workloads of one shape."""

    def __init__(self, cluster: Cluster, kept: Collection[Kept]) -> None:
        self._cluster, self._kept = cluster, kept
        self._pieces: dict[Shape, str] = {}
        self._holders: dict[Shape, str] = {}

    def has_node(self, workload: Workload) -> bool:
        """Return whether any node that it may use is open."""
        return bool((self._cluster.layout.open & allowed(self._cluster.layout, workload)).any())

    def no_node(self, workload: Workload) -> str:
        """Return that none is."""
        return f"{self.piece(workload)}; ask the administrator when nodes come back"

    def missing(self, workload: Workload) -> str:
        """Return what is not free."""
        piece = self.piece(workload)
        if workload.containers > 1:
            return f"{workload.containers} times {_amount(workload)} are not free together; {piece}"
        return f"no node has {_amount(workload)} free; {piece}"

    def piece(self, workload: Workload) -> str:
        """Return the largest piece that is free."""
        kind = shape(workload)
        if kind not in self._pieces:
            self._pieces[kind] = self._cluster.largest_piece(workload)
        return self._pieces[kind]

    def holder(self, workload: Workload) -> str:
        """Return for whom the room is kept that the workload would have otherwise; nothing where there is none."""
        kind = shape(workload)
        if kind not in self._holders:
            self._holders[kind] = self._holder(workload)
        return self._holders[kind]

    def _holder(self, workload: Workload) -> str:
        if not self._kept or not self._fits_without(workload, self._kept):
            return ""
        alone = next((kept[0] for kept in list(self._kept)[:NAMED] if self._fits_without(workload, [kept])), None)
        return title(alone) if alone else "others"

    def _fits_without(self, workload: Workload, kept: Iterable[Kept]) -> bool:
        with self._cluster.trial():
            for holder, places in kept:
                self._cluster.free(places, holder)
            return self._cluster.find(workload) is not None


def refusal(ledger: Ledger, workload: Workload) -> str:
    """Return why the project may not have the workload, and what would help; nothing where it may."""
    if ledger.may_keep(workload):
        return ""
    project, use = ledger.project(workload.project), ledger.use(workload.project)
    quota, asked = gpus(project.quota_milli), gpus(workload.total_milli)
    if project.name not in ledger.projects:
        return f"the project {project.name} is not active; ask its manager or the administrator"
    if workload.total_milli > project.quota_milli:
        kind = "" if not project.over_quota else " by work that cannot be taken back"
        return f"{project.name} may hold {quota}{kind}, and {asked} are asked for; ask for fewer or for a larger quota"
    if not ledger.may_be_fixed(workload):
        held = f"{project.name} holds {gpus(use.fixed_kept)} of its quota of {quota} by work that cannot be taken back"
        return f"{held}, and {asked} more are asked for; stop one of those, or submit it as preemptible"
    held = f"{project.name} holds {gpus(use.kept)} of its {quota} and may not go beyond"
    return f"{held}; stop one of its sessions, or ask for a larger quota"


def beyond(ledger: Ledger, workload: Workload) -> str:
    """Return how the project stands where the workload goes beyond its fair share; nothing where it does not."""
    if ledger.within_fair_share(workload) or not workload.total_milli:
        return ""
    name = workload.project
    fair, quota = gpus(ledger.fair.get(name, 0)), gpus(ledger.project(name).quota_milli)
    return (
        f"{name} holds {gpus(ledger.use(name).kept)}, its fair share is {fair} (quota {quota}),"
        " more only while others leave GPUs idle"
    )


def holds(ledger: Ledger, name: str) -> str:
    """Return what a project holds of its quota."""
    kept, quota = ledger.use(name).kept, ledger.project(name).quota_milli
    if kept <= quota:
        return f"{name} holds {gpus(kept)} of its quota of {gpus(quota)}"
    return f"{name} holds {gpus(kept)}, {gpus(kept - quota)} of them beyond its quota"


def reclaimed(ledger: Ledger, victim: Workload, beneficiary: Workload) -> str:
    """Return why a workload is taken back."""
    if victim.project == beneficiary.project:
        return f"{title(beneficiary)} has the higher priority ({beneficiary.priority} over {victim.priority})"
    if ledger.in_quota(beneficiary):
        return f"{holds(ledger, victim.project)}; {title(beneficiary)} is within its quota"
    fair = gpus(ledger.fair.get(victim.project, 0))
    return f"{holds(ledger, victim.project)}, its fair share is {fair}; {title(beneficiary)} is within its own"


def blockers(gone: Iterable[Running], places: Places) -> str:
    """Return who is leaving the nodes of the places, as the beginning of a sentence."""
    wanted = {placement.node for placement in places}
    there = [item for item in gone if any(placement.node in wanted for placement in item.placements)]
    return names(there) if there else "other sessions of its project are"


def names(running: Iterable[Running]) -> str:
    """Return whom, as the beginning of a sentence."""
    titles = sorted(title(item.workload) for item in running)
    more = f" and {len(titles) - NAMED} more" if len(titles) > NAMED else ""
    return f"{', '.join(titles[:NAMED])}{more} {'is' if len(titles) == 1 else 'are'}"


def title(workload: Workload) -> str:
    """Return a workload's name with its project."""
    return f"{workload.name or workload.id} of {workload.project}"


def nodes(places: Places) -> str:
    """Return where the places are."""
    found = sorted({placement.node for placement in places})
    return ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")


def _amount(workload: Workload) -> str:
    if workload.gpu_milli:
        return f"{gpus(workload.gpu_milli)}{held_by(workload)}"
    return f"{workload.cpu_milli / 1000:g} CPUs and {workload.memory_mib} MiB of memory"
