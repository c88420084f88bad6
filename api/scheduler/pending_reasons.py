"""Pending reasons: why a workload waits, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from api.scheduler import beside_reasons
from api.scheduler.capacity import Free, Ints
from api.scheduler.claims import Claim, Standing
from api.scheduler.closed_nodes import with_unhealthy
from api.scheduler.cluster import ClusterState
from api.scheduler.explanations import Known, held_by, largest_piece
from api.scheduler.ledger import Ledger
from api.scheduler.out_of_service import Service
from api.scheduler.phrases import IN_USE, IN_USE_IN_PART, both, gpus, without_gpus
from api.scheduler.shortage import lacking
from api.scheduler.signature import Frontier, Signature, signature_of
from api.scheduler.snapshot import Cause, PendingReason, Workload
from api.scheduler.titles import NAMED, may_be_told, nodes, whom
from api.scheduler.topology import allowed
from common.sentence import Sentence

OR_KEPT: dict[str, str] = {
    IN_USE: Sentence("every GPU in service that it may use is in use or kept for a session that waits"),
    IN_USE_IN_PART: Sentence("every GPU in service that it may use in part is in use or kept for a session that waits"),
}
"""What is said instead where something would be free if nothing were kept."""


@dataclass(frozen=True)
class PendingWorkload:
    """A workload that was served and waits, with what was known then.

    `never` is why it can never run. `refused` is what its project may not have: the workload as it is where it takes
    more than it asks for. Where it is nominated, `terminating` names those who still hold its places. `network` is why
    there is none between its containers. It is `further` where it is a container that an elastic one that runs could
    have more: no fair share is divided for that.
    """

    workload: Workload
    never: str = ""
    refused: Workload | None = None
    terminating: str = ""
    network: str = ""
    further: bool = False

    @property
    def is_able(self) -> bool:
        """Whether it would take room that it had."""
        return not (self.never or self.network)


def explain(
    cluster: ClusterState, ledger: Ledger, waiting: Sequence[PendingWorkload], reservations: Sequence[Claim]
) -> dict[str, PendingReason]:
    """Return why each of them waits, in the order in which they were served, as things stand when all are."""
    free = _FreePlaces(cluster, ledger, reservations)
    found: dict[str, PendingReason] = {}
    for position, item in enumerate(waiting, start=1):
        cause, reason = _cause(item, free, ledger)
        found[item.workload.id] = PendingReason(cause, reason, position)
    return found


def _cause(item: PendingWorkload, free: _FreePlaces, ledger: Ledger) -> tuple[Cause, str]:
    """Return the first cause that holds, from the one that never changes to the one that may pass any moment."""
    workload = item.workload
    if item.never:
        return Cause.NEVER_FITS, item.never
    claim = ledger.claims.of(workload)
    if claim and claim.standing is Standing.NOMINATED:
        return Cause.RECLAIMING, Sentence(
            "{whom} still being stopped; room on {nodes} is kept for it",
            whom=item.terminating,
            nodes=nodes(claim.places),
        )
    if item.refused and (refused := refusal(ledger, item.refused)):
        return refused
    if item.network:
        return Cause.NO_NETWORK, item.network
    return _no_room(item, free, ledger) if free.has_node(workload) else (Cause.NO_NODE, free.no_node(workload))


def _no_room(item: PendingWorkload, free: _FreePlaces, ledger: Ledger) -> tuple[Cause, str]:
    """Return what is not free, and where that is so that guarantees of others hold it."""
    cause, reason = _not_free(item, free, ledger)
    too_much = free.service.quotas_beyond(item.workload) if cause is Cause.NO_ROOM else ""
    return cause, both(reason, too_much) if too_much else reason


def _not_free(item: PendingWorkload, free: _FreePlaces, ledger: Ledger) -> tuple[Cause, str]:
    missing = free.missing(item.workload)
    claim = ledger.claims.of(item.workload)
    if claim and claim.places:
        where = nodes(claim.places)
        return Cause.NO_ROOM, Sentence(
            "{missing}; room on {nodes} is kept for it until it is free", missing=missing, nodes=where
        )
    holder = free.holder(item.workload)
    if holder:
        return Cause.RESERVED, Sentence("the room that is free is kept for {holder}, served first", holder=holder)
    if item.further:
        return Cause.NO_ROOM, missing
    if kept := kept_of_quota(ledger, item.workload):
        return Cause.RESERVED, both(missing, kept)
    more = beyond(ledger, item.workload)
    return (Cause.FAIR_SHARE, both(missing, more)) if more else (Cause.NO_ROOM, missing)


class _FreePlaces:
    """What is free at the end of a decision; asked once for all workloads of one signature."""

    def __init__(self, cluster: ClusterState, ledger: Ledger, reservations: Sequence[Claim]) -> None:
        self._cluster, self._reservations = cluster, reservations
        self.service = Service(cluster, ledger, lambda: self._unreserved)
        self._pieces: dict[Signature, str] = {}
        self._largest: Known = {}
        self._largest_unreserved: Known = {}
        self._holders: dict[Signature, tuple[list[Workload], str]] = {}
        self._full = Frontier(least=True)

    @cached_property
    def _unreserved(self) -> Free:
        """What is free where nothing is kept for anybody."""
        with self._cluster.trial():
            for each in self._reservations:
                self._cluster.release(each.places, each.workload)
            return self._cluster.state.copy()

    @cached_property
    def _reserved_rows(self) -> Ints:
        """On which something is kept."""
        rows = self._cluster.layout.rows
        kept = {rows[place.node] for each in self._reservations for place in each.places if place.node in rows}
        return np.array(sorted(kept), dtype=np.int64)

    def _has_reserved(self, workload: Workload) -> bool:
        """Return whether anything is kept on the nodes that the workload may use."""
        return bool(allowed(self._cluster.layout, workload)[self._reserved_rows].any())

    def has_node(self, workload: Workload) -> bool:
        """Return whether any node that it may use is open."""
        return bool((self._cluster.layout.takes(workload) & allowed(self._cluster.layout, workload)).any())

    def no_node(self, workload: Workload) -> str:
        """Return that none is, or none that knows what is asked for."""
        layout = self._cluster.layout
        is_known = not (layout.open & allowed(layout, workload)).any()
        if is_known:
            return Sentence("{piece}; ask the administrator when nodes come back", piece=self.piece(workload))
        return Sentence("{piece}; ask the administrator when that is", piece=self.piece(workload))

    def missing(self, workload: Workload) -> str:
        """Return what is not free."""
        piece = with_unhealthy(self.piece(workload), self._cluster.layout, workload)
        if there := self.service.free_outside(workload):
            piece = both(piece, there)
        amount, count = amount_of(workload), workload.replicas
        if count > 1 and (fits := self._cluster.most(workload)):
            return Sentence(
                "{count} times {amount} are not free together, only {fits}; {piece}",
                count=count,
                amount=amount,
                fits=fits,
                piece=piece,
            )
        if count > 1:
            return Sentence(
                "{count} times {amount} are not free together; {piece}", count=count, amount=amount, piece=piece
            )
        return Sentence("no node has {amount} free; {piece}", amount=amount, piece=piece)

    def piece(self, workload: Workload) -> str:
        """Return the largest piece that is free."""
        signature = signature_of(workload)
        if signature not in self._pieces:
            found = self._cluster.largest_piece(workload, self._largest)
            is_kept = found in OR_KEPT and self._has_reserved(workload) and self._unreserved_piece(workload) != found
            self._pieces[signature] = OR_KEPT[found] if is_kept else found
        return self._pieces[signature]

    def _unreserved_piece(self, workload: Workload) -> str:
        return largest_piece(self._cluster.layout, self._unreserved, workload, self._largest_unreserved)

    def holder(self, workload: Workload) -> str:
        """Return for whom the room is reserved that the workload would have otherwise; nothing where there is none."""
        signature = signature_of(workload)
        if signature not in self._holders:
            found = self._holders_of(workload)
            self._holders[signature] = found, _together(found) if found else ""
        holders, amount = self._holders[signature]
        if not holders:
            return ""
        to = whom(holders, workload.project)
        if not may_be_told(holders, workload.project):
            return to
        return Sentence("{whom} with {amount}", whom=to, amount=amount)

    def _holders_of(self, workload: Workload) -> list[Workload]:
        if not self._has_reserved(workload) or workload in self._full:
            return []
        if not self._cluster.fits(workload, self._unreserved):
            self._full.add(lacking(self._cluster.layout, self._unreserved, workload))
            return []
        alone = next((each for each in self._reservations[:NAMED] if self._fits_without(workload, each)), None)
        return [each.workload for each in ([alone] if alone else self._reservations)]

    def _fits_without(self, workload: Workload, reservation: Claim) -> bool:
        with self._cluster.trial():
            self._cluster.release(reservation.places, reservation.workload)
            return self._cluster.fits(workload, self._cluster.state)


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
    project, asked = ledger.project(workload.project), _asked(workload)
    if project.name not in ledger.projects:
        return Cause.QUOTA, Sentence(
            "the project {project} is not active; ask its manager or the administrator", project=project.name
        )
    fixed = not ledger.may_have_gpus_fixed(workload)
    is_quota = fixed or not project.over_quota
    most = project.quota_milli if is_quota else project.cap_milli
    if workload.total_milli > most:
        only_fixed = fixed and project.over_quota
        return Cause.QUOTA, beside_reasons.too_much(
            project.name, gpus(most), asked, is_quota=is_quota, fixed=only_fixed
        )
    held = beside_reasons.of_line(_held(ledger, project.name, fixed=fixed), gpus(most), is_quota=is_quota, fixed=fixed)
    bare = ledger.after(workload, fixed=fixed) - ledger.deferred(workload, fixed=fixed)
    if bare <= most:
        deferred = ledger.claims.deferred(project.name, workload)
        kept = {each.workload: each.kept(fixed=True) if fixed else each.kept_of_cap() for each in deferred}
        return Cause.RESERVED, _keeps(held, kept, most - bare + workload.total_milli, project.name)
    if fixed:
        return Cause.QUOTA, Sentence(
            "{held}, and the session asks for {asked} more; stop one of those, or submit it as preemptible",
            held=held,
            asked=asked,
        )
    if is_quota:
        return Cause.QUOTA, Sentence(
            "{held} and may not go beyond; stop one of its sessions, or ask for a larger quota", held=held
        )
    return Cause.QUOTA, Sentence(
        "{held} and may not go beyond; stop one of its sessions, or ask for a larger limit", held=held
    )


def kept_of_quota(ledger: Ledger, workload: Workload) -> str:
    """Return for whom the project keeps of its quota what the workload would be within otherwise, or nothing."""
    if not workload.total_milli:
        return ""
    project, after = ledger.project(workload.project), ledger.after(workload)
    bare = after - ledger.deferred(workload)
    if not bare <= project.quota_milli < after:
        return ""
    held = beside_reasons.of_line(_held(ledger, project.name), gpus(project.quota_milli), is_quota=True, fixed=False)
    kept = {each.workload: each.kept() for each in ledger.claims.deferred(project.name, workload)}
    return _keeps(held, kept, project.quota_milli - bare + workload.total_milli, project.name)


def _keeps(held: str, kept: Mapping[Workload, int], left: int, project: str) -> str:
    """Return what a project holds, and that it keeps of what is left for others."""
    holders = [other for other, milli in kept.items() if milli]
    to = whom(holders, project)
    if not may_be_told(holders, project):
        return Sentence("{held} and keeps some for {whom}, served first", held=held, whom=to)
    amount = gpus(min(sum(kept.values()), left))
    return Sentence("{held} and keeps {gpus} for {whom}, served first", held=held, gpus=amount, whom=to)


def _refusal_of_domain(ledger: Ledger, workload: Workload) -> str:
    domains, asked = ledger.domains, _asked(workload)
    name = domains.of_project[workload.project]
    limit = domains.domains[name].limit_milli or 0
    if workload.total_milli > limit:
        return Sentence(
            "the projects of {domain} may have {most} together, and the session asks for {asked}; ask for fewer, or "
            "for a larger limit of {domain}",
            domain=name,
            most=gpus(limit),
            asked=asked,
        )
    return Sentence(
        "the projects of {domain} have, or are about to, {held} of the {most} that the domain may have; wait, or ask "
        "for a larger limit of {domain}",
        domain=name,
        held=gpus(domains.retained(name, workload)),
        most=gpus(limit),
    )


def beyond(ledger: Ledger, workload: Workload) -> str:
    """Return how the project stands where the workload goes beyond its fair share; nothing where it does not."""
    if not workload.total_milli:
        return beside_reasons.beyond(ledger, workload)
    if ledger.in_quota(workload) or ledger.within_fair_share(workload):
        return ""
    name = workload.project
    fair, quota = gpus(ledger.fair.get(name, 0)), gpus(ledger.project(name).quota_milli)
    return Sentence(
        "{held}, its fair share is {fair} (quota {quota}), more only while others leave GPUs idle",
        held=_held(ledger, name),
        fair=fair,
        quota=quota,
    )


def holds(ledger: Ledger, name: str) -> str:
    """Return what a project holds of its quota."""
    running, quota = ledger.holdings_of(name).retained, ledger.project(name).quota_milli
    if running <= quota:
        return Sentence("{held} of its quota of {most}", held=_held(ledger, name), most=gpus(quota))
    more = gpus(running - quota)
    return Sentence("{held}, {more} of them beyond its quota", held=_held(ledger, name), more=more)


def _held(ledger: Ledger, name: str, *, fixed: bool = False) -> str:
    """Return what runs of a project, and what is about to."""
    own, nominated = ledger.holdings_of(name), ledger.claims.nominated(name, fixed=fixed)
    return beside_reasons.held(name, gpus(own.fixed_retained if fixed else own.retained), nominated and gpus(nominated))


def _together(workloads: Sequence[Workload]) -> str:
    """Return what they come to: GPUs, or what is asked for without any."""
    milli = sum(each.total_milli for each in workloads)
    if milli:
        return gpus(milli)
    cpu = sum(each.replicas * each.cpu_milli for each in workloads)
    return without_gpus(cpu, sum(each.replicas * each.memory_mib for each in workloads))


def _asked(workload: Workload) -> str:
    """Return the GPUs that a workload asks for, and what it would have where it gets more."""
    asked = workload.replicas * workload.gpu_milli
    if workload.total_milli == asked:
        return gpus(asked)
    taken = gpus(workload.total_milli)
    return Sentence("{asked} (as slices, which count whole, {taken})", asked=gpus(asked), taken=taken)


def amount_of(workload: Workload) -> str:
    """Return what one container of a workload asks for."""
    if workload.gpu_milli:
        return held_by(gpus(workload.gpu_milli), workload)
    return without_gpus(workload.cpu_milli, workload.memory_mib)
