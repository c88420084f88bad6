"""Pending reasons: why a workload waits and what would help, and the words of the decision log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.scheduler import beside_reasons
from api.scheduler.claims import Claim, Standing
from api.scheduler.cluster import ClusterState
from api.scheduler.explanations import Known, gpus, held_by, unhealthy
from api.scheduler.ledger import Ledger
from api.scheduler.signature import Frontier, Signature, signature_of
from api.scheduler.snapshot import Cause, PendingReason, Placement, Running, Workload
from api.scheduler.topology import allowed

OF_OTHERS = "a session of another project"
"""What people of one project are told of the sessions of others, whose names are none of their business."""
NAMED = 3
"""So many are named in a sentence; the others are counted."""

Places = Sequence[Placement]


@dataclass(frozen=True)
class PendingWorkload:
    """A workload that was served and waits, with what was known then.

    `never` is why it can never run. `refused` is what its project may not have: the workload as it is where it takes
    more than it asks for. Where it is nominated, `terminating` names those who still hold its places.
    """

    workload: Workload
    never: str = ""
    refused: Workload | None = None
    terminating: str = ""


def explain(
    cluster: ClusterState, ledger: Ledger, waiting: Sequence[PendingWorkload], reservations: Sequence[Claim]
) -> dict[str, PendingReason]:
    """Return why each of them waits, in the order in which they were served, as things stand when all are."""
    free = _FreePlaces(cluster, reservations)
    found: dict[str, PendingReason] = {}
    for position, item in enumerate(waiting, start=1):
        cause, reason = _cause(item, free, ledger)
        found[item.workload.id] = PendingReason(cause, reason, position)
    return found


def line(item: PendingWorkload, explained: Mapping[str, PendingReason]) -> str:
    """Return the line of the log."""
    return f"waits: {full_title(item.workload)}: {explained[item.workload.id].reason}"


def _cause(item: PendingWorkload, free: _FreePlaces, ledger: Ledger) -> tuple[Cause, str]:
    """Return the first cause that holds, from the one that never changes to the one that may pass any moment."""
    workload = item.workload
    if item.never:
        return Cause.NEVER_FITS, item.never
    claim = ledger.claims.of(workload)
    if claim and claim.standing is Standing.NOMINATED:
        return Cause.RECLAIMING, f"{item.terminating} still being stopped; {nodes(claim.places)} is kept for it"
    if item.refused and (refused := refusal(ledger, item.refused)):
        return refused
    return _no_room(item, free, ledger) if free.has_node(workload) else (Cause.NO_NODE, free.no_node(workload))


def _no_room(item: PendingWorkload, free: _FreePlaces, ledger: Ledger) -> tuple[Cause, str]:
    missing = free.missing(item.workload)
    claim = ledger.claims.of(item.workload)
    if claim and claim.places:
        return Cause.NO_ROOM, f"{missing}; {nodes(claim.places)} is kept for it until it is free"
    holder = free.holder(item.workload)
    if holder:
        return Cause.RESERVED, f"the room that is free is kept for {holder}, served first"
    more = beyond(ledger, item.workload)
    return (Cause.FAIR_SHARE, f"{missing}; {more}") if more else (Cause.NO_ROOM, missing)


class _FreePlaces:
    """What is free at the end of a decision; asked once for all workloads of one signature."""

    def __init__(self, cluster: ClusterState, reservations: Sequence[Claim]) -> None:
        self._cluster, self._reservations = cluster, reservations
        self._pieces: dict[Signature, str] = {}
        self._largest: Known = {}
        self._holders: dict[Signature, list[Workload]] = {}
        self._full = Frontier(least=True)

    def has_node(self, workload: Workload) -> bool:
        """Return whether any node that it may use is open."""
        return bool((self._cluster.layout.takes(workload) & allowed(self._cluster.layout, workload)).any())

    def no_node(self, workload: Workload) -> str:
        """Return that none is, or none that knows what is asked for."""
        layout = self._cluster.layout
        is_known = not (layout.open & allowed(layout, workload)).any()
        return f"{self.piece(workload)}; ask the administrator when {'nodes come back' if is_known else 'that is'}"

    def missing(self, workload: Workload) -> str:
        """Return what is not free."""
        piece = f"{self.piece(workload)}{unhealthy(self._cluster.layout, workload)}"
        if workload.replicas > 1:
            return f"{workload.replicas} times {_amount(workload)} are not free together; {piece}"
        return f"no node has {_amount(workload)} free; {piece}"

    def piece(self, workload: Workload) -> str:
        """Return the largest piece that is free."""
        signature = signature_of(workload)
        if signature not in self._pieces:
            self._pieces[signature] = self._cluster.largest_piece(workload, self._largest)
        return self._pieces[signature]

    def holder(self, workload: Workload) -> str:
        """Return for whom the room is reserved that the workload would have otherwise; nothing where there is none."""
        signature = signature_of(workload)
        if signature not in self._holders:
            self._holders[signature] = self._holders_of(workload)
        holders = self._holders[signature]
        return f"{_whom(holders, workload.project)} with {_together(holders)}" if holders else ""

    def _holders_of(self, workload: Workload) -> list[Workload]:
        if not self._reservations or workload in self._full:
            return []
        if not self._fits_without(workload, self._reservations):
            self._full.add(workload)
            return []
        alone = next(([each] for each in self._reservations[:NAMED] if self._fits_without(workload, [each])), None)
        return [each.workload for each in alone or self._reservations]

    def _fits_without(self, workload: Workload, reservations: Iterable[Claim]) -> bool:
        with self._cluster.trial():
            for each in reservations:
                self._cluster.release(each.places, each.workload)
            return self._cluster.find(workload) is not None


def refusal(ledger: Ledger, workload: Workload) -> tuple[Cause, str] | None:
    """Return why the project may not have the workload, and what would help; None where it may."""
    if ledger.may_retain(workload):
        return None
    if ledger.domains.beyond(workload) and ledger.may_have_beside_its_domain(workload):
        return Cause.QUOTA, _refusal_of_domain(ledger, workload)
    if ledger.may_have_gpus(workload):
        return Cause.QUOTA, beside_reasons.refusal(ledger, workload)
    return _refusal_of_gpus(ledger, workload)


def _refusal_of_gpus(ledger: Ledger, workload: Workload) -> tuple[Cause, str]:
    project, asked = ledger.project(workload.project), gpus(workload.total_milli)
    if project.name not in ledger.projects:
        return Cause.QUOTA, f"the project {project.name} is not active; ask its manager or the administrator"
    fixed = not ledger.may_have_gpus_fixed(workload)
    line, most = ("quota", project.quota_milli) if fixed or not project.over_quota else ("limit", project.cap_milli)
    if workload.total_milli > most:
        kind = " by work that cannot be reclaimed" if fixed and project.over_quota else ""
        hint = f"ask for fewer or for a larger {line}"
        return Cause.QUOTA, f"{project.name} may hold {gpus(most)}{kind}, and {asked} are asked for; {hint}"
    held = f"{project.name} {_held(ledger, project.name, fixed=fixed)} of its {line} of {gpus(most)}"
    held += " by work that cannot be reclaimed" if fixed else ""
    bare = ledger.after(workload, fixed=fixed) - ledger.deferred(workload, fixed=fixed)
    if bare <= most:
        kept = {
            claim.workload: claim.kept(fixed=True) if fixed else claim.kept_of_cap()
            for claim in ledger.claims.deferred(project.name, workload)
        }
        holders = [other for other, milli in kept.items() if milli]
        left = min(sum(kept.values()), most - bare + workload.total_milli)
        return Cause.RESERVED, f"{held} and keeps {gpus(left)} for {_whom(holders, project.name)}, served first"
    if fixed:
        return Cause.QUOTA, f"{held}, and {asked} more are asked for; stop one of those, or submit it as preemptible"
    return Cause.QUOTA, f"{held} and may not go beyond; stop one of its sessions, or ask for a larger {line}"


def _refusal_of_domain(ledger: Ledger, workload: Workload) -> str:
    domains, asked = ledger.domains, gpus(workload.total_milli)
    name = domains.of_project[workload.project]
    limit = domains.domains[name].limit_milli or 0
    if workload.total_milli > limit:
        hint = f"ask for fewer, or for a larger limit of {name}"
        return f"the projects of {name} may have {gpus(limit)} together, and {asked} are asked for; {hint}"
    have = f"the projects of {name} have, or are about to, {gpus(domains.retained(name, workload))}"
    return f"{have} of the {gpus(limit)} that the domain may have; wait, or ask for a larger limit of {name}"


def beyond(ledger: Ledger, workload: Workload) -> str:
    """Return how the project stands where the workload goes beyond its fair share; nothing where it does not."""
    if not workload.total_milli:
        return beside_reasons.beyond(ledger, workload)
    if ledger.within_fair_share(workload):
        return ""
    name = workload.project
    fair, quota = gpus(ledger.fair.get(name, 0)), gpus(ledger.project(name).quota_milli)
    return (
        f"{name} {_held(ledger, name)}, its fair share is {fair} (quota {quota}),"
        " more only while others leave GPUs idle"
    )


def holds(ledger: Ledger, name: str) -> str:
    """Return what a project holds of its quota."""
    running, quota = ledger.holdings_of(name).retained, ledger.project(name).quota_milli
    if running <= quota:
        return f"{name} {_held(ledger, name)} of its quota of {gpus(quota)}"
    return f"{name} {_held(ledger, name)}, {gpus(running - quota)} of them beyond its quota"


def _held(ledger: Ledger, name: str, *, fixed: bool = False) -> str:
    """Return what runs of a project, and what is about to."""
    own, nominated = ledger.holdings_of(name), ledger.claims.nominated(name, fixed=fixed)
    more = f" and gets {gpus(nominated)} more" if nominated else ""
    return f"holds {gpus(own.fixed_retained if fixed else own.retained)}{more}"


def _whom(holders: Sequence[Workload], project: str) -> str:
    """Return for whom room or quota is kept, as people of a project are told."""
    return f"{len(holders)} others" if len(holders) > 1 else title(holders[0], project)


def shrunk(victim: Workload, beneficiary: Workload) -> str:
    """Return why a gang gives up containers for other work of its project."""
    return f"{title(beneficiary, victim.project)} waits, and the gang goes on with fewer containers"


def reclaimed(ledger: Ledger, victim: Workload, beneficiary: Workload) -> str:
    """Return why a workload is reclaimed."""
    whom = title(beneficiary, victim.project)
    if victim.project == beneficiary.project:
        return f"{whom} has the higher priority ({beneficiary.priority} over {victim.priority})"
    if not victim.total_milli and not beneficiary.total_milli:
        return f"{beside_reasons.reclaimed(ledger, victim)}; {whom} is within its own"
    if not victim.total_milli and ledger.in_quota(beneficiary):
        return f"{whom} is within its quota of GPUs, and it runs beside them without one"
    if ledger.in_quota(beneficiary):
        return f"{holds(ledger, victim.project)}; {whom} is within its quota"
    fair = gpus(ledger.fair.get(victim.project, 0))
    return f"{holds(ledger, victim.project)}, its fair share is {fair}; {whom} is within its own"


def moved(victim: Workload, beneficiary: Workload, places: Places) -> str:
    """Return why a workload is moved, and where it goes on."""
    return f"{title(beneficiary, victim.project)} fits once it is elsewhere; {nodes(places)} is kept for it"


def blockers(terminating: Iterable[Running], places: Places, project: str) -> str:
    """Return who is terminating on the nodes of the places, as the beginning of a sentence for people of a project."""
    wanted = {placement.node for placement in places}
    there = [item for item in terminating if any(placement.node in wanted for placement in item.placements)]
    return names(there, project) if there else "other sessions of its project are"


def names(running: Iterable[Running], project: str) -> str:
    """Return whom, as the beginning of a sentence for people of a project."""
    found = list(running)
    ids = {item.workload.id for item in found}
    stopped = [item for item in found if item.part_of not in ids]
    whole = [title(item.workload, project) for item in stopped if not item.part_of]
    of_gangs = Counter(title(item.workload, project) for item in stopped if item.part_of)
    counted = [f"{count} container{'s' if count > 1 else ''} of {of}" for of, count in of_gangs.items()]
    titles = sorted([*whole, *counted])
    more = f" and {len(titles) - NAMED} more" if len(titles) > NAMED else ""
    return f"{', '.join(titles[:NAMED])}{more} {'is' if len(stopped) == 1 else 'are'}"


def title(workload: Workload, project: str) -> str:
    """Return what people of a project are told of a workload: its name with its project, where they may know both."""
    if workload.project != project:
        return OF_OTHERS
    return f"a private session of {workload.project}" if workload.private else full_title(workload)


def full_title(workload: Workload) -> str:
    """Return a workload's name with its project, for the log."""
    return f"{workload.name or workload.id} of {workload.project}"


def nodes(places: Places) -> str:
    """Return where the places are."""
    found = sorted({placement.node for placement in places})
    return ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")


def _together(workloads: Sequence[Workload]) -> str:
    """Return what they come to: GPUs, or what is asked for without any."""
    milli = sum(each.total_milli for each in workloads)
    if milli:
        return gpus(milli)
    cpu = sum(each.replicas * each.cpu_milli for each in workloads)
    return _bare(cpu, sum(each.replicas * each.memory_mib for each in workloads))


def _amount(workload: Workload) -> str:
    if workload.gpu_milli:
        return f"{gpus(workload.gpu_milli)}{held_by(workload)}"
    return _bare(workload.cpu_milli, workload.memory_mib)


def _bare(cpu_milli: int, memory_mib: int) -> str:
    return f"{cpu_milli / 1000:g} CPUs and {memory_mib} MiB of memory"
