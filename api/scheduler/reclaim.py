"""Reclaim: who has to leave so that a workload gets what its project is owed, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from api.scheduler import titles
from api.scheduler.claims import Claim, Standing
from api.scheduler.draft import Draft, Pool, Statement, Vain
from api.scheduler.rights import Right
from api.scheduler.signature import signature_of
from api.scheduler.snapshot import NO_CAP, Running, Workload
from api.scheduler.victim_search import cheapest
from api.scheduler.victims import Line, VictimPool

NOMINATIONS_CHECKED = 20
"""So many workloads that wait already, each with its own scheduling signature, are asked whether they would take the
room that is freed for another."""
RECLAIMED_FOR = 32
"""For so many workloads others are reclaimed in one decision, each after a search for the fewest. Those that come
after them in the order have their turn in the next decision, which the end of those that terminate brings about."""


def may_be_for(draft: Draft, workload: Workload) -> bool:
    """Return whether others may be reclaimed for one more workload in this decision."""
    if draft.beneficiaries < RECLAIMED_FOR:
        return True
    draft.turns.keep(workload)
    return False


def reclaim(draft: Draft, workload: Workload, vain: Vain) -> Statement | None:
    """Propose to reclaim from the smallest set of victims that makes room, and to nominate the workload for it."""
    if not may_be_for(draft, workload):
        return None
    for kind, pool in pools(draft, workload, vain):
        if not draft.turns.may_search(workload):
            return None
        makes_guaranteed = bool(pool.own) and pool.right is Right.CPU_AND_MEMORY
        on_work = _on_running_work(draft, workload) if pool.own and not makes_guaranteed else []
        with draft.without(_without_right(draft) if makes_guaranteed else on_work):
            victims = cheapest(draft.later, draft.residents, workload, pool, draft.turns.spend)
            if not victims:
                vain.pools[kind].add(workload)
                continue
            with draft.once_gone(victims):
                is_taken = pool.own and _is_for_another(draft, on_work, guaranteed=makes_guaranteed)
                places = None if is_taken else draft.later.find(workload)
        if places and draft.may_take(workload, places, partial(_has_right, draft, pool.right, victims)):
            names = titles.names(victims, workload.project)
            return Statement(workload, places, victims, names, right=pool.right)
    return None


def _has_right(draft: Draft, right: Right, victims: Sequence[Running], workload: Workload) -> bool:
    """Return whether a workload as it would be on its places may have these gone: a slice, for one, counts whole.

    Else it would be beyond the line itself, and those that had to go would be within theirs and have it gone in turn.
    """
    ledger = draft.ledger
    if not ledger.may_retain(workload):
        return False
    if right is Right.GPUS:
        own = sum(each.workload.total_milli for each in victims if each.workload.project == workload.project)
        return ledger.after(workload) - own <= ledger.project(workload.project).quota_milli
    return right is not Right.FAIR_SHARE or ledger.may_reclaim_fairly(workload)


def pools(draft: Draft, workload: Workload, vain: Vain) -> Iterator[tuple[Pool, VictimPool]]:
    """Yield those who may have to make room, in the order in which they are asked, but none asked in vain.

    Beyond their lines are the same projects for all that are within theirs; of its own each has others.
    """
    ledger, project = draft.ledger, workload.project
    if not ledger.may_be_fixed(workload):
        return
    due, quota, in_quota = ledger.due(workload), ledger.project(project).quota_milli, ledger.in_quota(workload)
    due_beside = ledger.beside.due(workload)
    without_gpus = draft.residents.without_gpus() if 0 < workload.total_milli <= quota else {}
    guests = project if any(name != project for name in without_gpus) else None
    pool = partial(VictimPool, now=draft.now, least=draft.least, least_of=draft.least_of, taken=draft.terminating)
    domain, due_together = ledger.domains.of_project.get(project, ""), ledger.domains.beyond(workload)
    if due_together:
        pool = partial(pool, due_together=due_together, together=ledger.domains.members[domain])
    if not workload.total_milli and not due_beside and ledger.beside.is_guaranteed(workload):
        yield from _beyond_beside(draft, workload, vain, pool)
    if workload.total_milli and not (due or due_beside) and (in_quota or ledger.may_reclaim_fairly(workload)):
        # all others have the same guests as a project that has none itself
        line = "fair" if not in_quota else f"quota of {project}" if project in without_gpus else "quota"
        line += f" within {domain}" if due_together else ""
        for last_may_pass in (False, True):
            kind: Pool = (line, last_may_pass)
            beyond = ledger.over_quota if in_quota else ledger.over_fair_share
            if workload not in vain.pools[kind] and ((surplus := beyond(project)) or (guests and in_quota)):
                lines = None if in_quota or not ledger.beside.counts else ledger.beside.lines()
                of_age = _beyond_by_age(draft, surplus) if last_may_pass and not in_quota else None
                right, guests_of = (Right.GPUS, guests) if in_quota else (Right.FAIR_SHARE, None)
                asked = pool(surplus, last_may_pass=last_may_pass, guests_of=guests_of, lines=lines, alone=of_age)
                yield kind, replace(asked, right=right)
    extras: Pool = ("extras", project, 0)
    if draft.residents.has_extras(project) and workload not in vain.pools[extras]:
        # its gangs have grown for want of other work, whatever that is worth
        yield extras, pool(own=project, below=NO_CAP, extras_alone=True, due=due, due_beside=due_beside)
    yield from _extras_and_beyond(draft, workload, vain, partial(pool, due_beside=due_beside, guests_of=guests))
    if not draft.residents.has_below(project, workload.priority):
        return
    stopped = _stopped_in_turn(draft, workload)
    since = f" but those stopped since {workload.submitted_at}" if stopped else ""
    own = partial(pool, own=project, below=workload.priority, taken=draft.terminating.keys() | stopped)
    # What could be guaranteed goes before what never can: reclaimed for that, it would be the first to return.
    spared = quota if workload.total_milli > quota else -1
    alone: Pool = (f"own{since}", project, workload.priority)
    if workload not in vain.pools[alone]:
        yield alone, own(spared=spared, due=due, due_beside=due_beside)
    both: Pool = ("both", project, workload.priority)
    if 0 < workload.total_milli <= quota and workload not in vain.pools[both]:
        surplus = ledger.over_quota(project)
        if surplus or guests:
            due = max(0, ledger.after(workload) - quota)
            asked = own(surplus, last_may_pass=True, due=due, due_beside=due_beside, guests_of=guests)
            yield both, replace(asked, right=Right.GPUS, beyond=_beyond_quota(draft, surplus))
    if not workload.total_milli:
        yield from _own_and_beyond_beside(draft, workload, vain, own, since)


def _stopped_in_turn(draft: Draft, workload: Workload) -> frozenset[str]:
    """Return whom of its own project a workload without GPUs, which was stopped itself, has no stopped any more.

    Those have GPUs and were stopped since it was submitted. A priority stands beside the order of rights: theirs would
    have a guarantee of CPU stopped, and that the workload, for ever.
    """
    if workload.total_milli or not (workload.requeued_at and draft.ledger.beside.counts):
        return frozenset()
    own = [each.workload for each in draft.residents.of(workload.project) if each.workload.total_milli]
    return frozenset(each.id for each in own if each.requeued_at > workload.submitted_at)


def _extras_and_beyond(
    draft: Draft, workload: Workload, vain: Vain, pool: Callable[..., VictimPool]
) -> Iterator[tuple[Pool, VictimPool]]:
    """Yield for what is within its quota once gangs of its project give up some: these, with who goes beyond.

    What gangs have grown by takes no right from other work of their project.
    """
    project, ledger = workload.project, draft.ledger
    quota, kind = ledger.project(project).quota_milli, ("extras and beyond", project, 0)
    is_owed = 0 < workload.total_milli <= quota and not ledger.in_quota(workload)
    if not is_owed or not draft.residents.has_extras(project) or workload in vain.pools[kind]:
        return
    if surplus := ledger.over_quota(project):
        asked = pool(surplus, last_may_pass=True, own=project, below=NO_CAP, extras_alone=True)
        due = max(ledger.due(workload), ledger.after(workload) - quota)
        yield kind, replace(asked, due=due, right=Right.GPUS, beyond=_beyond_quota(draft, surplus))


def _beyond_beside(
    draft: Draft, workload: Workload, vain: Vain, pool: Callable[..., VictimPool]
) -> Iterator[tuple[Pool, VictimPool]]:
    """Yield for a guarantee of CPU and memory who goes beyond those: what has no GPUs, then also what has too many.

    Nobody where nobody does. Those who do are the same for all projects that do not themselves.
    """
    project, lines = workload.project, draft.ledger.beside.lines()
    guests, over_quota = _guests_beyond(draft, lines), draft.ledger.over_quota("")
    own_beyond = over_quota.pop(project, 0)
    whose = f" of {project}" if own_beyond or project in guests else ""
    asked: list[dict[str, int]] = [{}] if guests - {project} else []
    for surplus in [*asked, over_quota] if over_quota else asked:
        for last_may_pass in (False, True):
            kind: Pool = (f"CPU and memory{whose}{' and GPUs' if surplus else ''}", last_may_pass)
            if workload not in vain.pools[kind]:
                asked_of = pool(surplus, last_may_pass=last_may_pass, guests_of=project, lines=lines)
                yield kind, replace(asked_of, right=Right.CPU_AND_MEMORY, beyond=_beyond_quota(draft, surplus))


def _guests_beyond(draft: Draft, lines: Mapping[str, Line]) -> set[str]:
    """Return the projects of work without GPUs that has no right, or goes beyond the quotas of CPU and memory."""
    return {
        name
        for name, asking in draft.residents.without_gpus().items()
        if not (line := lines.get(name)) or line.surplus or any(set(asked).isdisjoint(line.given) for asked in asking)
    }


def _own_and_beyond_beside(
    draft: Draft, workload: Workload, vain: Vain, own: Callable[..., VictimPool], since: str
) -> Iterator[tuple[Pool, VictimPool]]:
    """Yield for what is a guarantee once enough of its own left: that of a lower priority, with who goes beyond."""
    ledger, project = draft.ledger, workload.project
    due = ledger.beside.due_within_quota(workload)
    if due is None:
        return
    over_quota = ledger.over_quota(project)
    for surplus in [{}, over_quota] if over_quota else [{}]:
        kind: Pool = (f"both of CPU and memory{' and GPUs' if surplus else ''}{since}", project, workload.priority)
        if workload not in vain.pools[kind]:
            lines = _with_those_beyond(draft, ledger.beside.lines())
            asked = own(surplus, last_may_pass=True, due_beside=due, guests_of=project, lines=lines)
            yield kind, replace(asked, right=Right.CPU_AND_MEMORY, beyond=_beyond_quota(draft, surplus))


def _beyond_quota(draft: Draft, surplus: Mapping[str, int]) -> frozenset[str]:
    return draft.residents.beyond(surplus, draft.terminating)


def _with_those_beyond(draft: Draft, lines: Mapping[str, Line]) -> Mapping[str, Line]:
    """Return the lines with who it is of each project that goes beyond."""
    beyond = draft.residents.beyond
    return {
        name: replace(line, beyond=beyond({name: line.surplus}, draft.terminating, line.resource))
        for name, line in lines.items()
    }


def _beyond_by_age(draft: Draft, surplus: Mapping[str, int]) -> frozenset[str]:
    """Return who came last to what projects have beyond: who was within the share stays, whatever starts later."""
    return draft.residents.youngest(draft.ledger.before(surplus), draft.terminating)


def _without_right(draft: Draft) -> list[Claim]:
    """Return the places that are kept for who is neither nominated nor guaranteed anything."""
    kept = [claim for claim in draft.claims.with_places() if claim.standing is not Standing.NOMINATED]
    return [claim for claim in kept if not draft.ledger.is_guaranteed(claim.workload)]


def _on_running_work(draft: Draft, workload: Workload) -> list[Claim]:
    """Return the soft claims of other projects to places of which nothing is free: own work is stopped past them.

    They are for who has no right to stop who runs there, and lose nothing that they have.
    """
    return [each for each in draft.claims.soft() if not each.idle and each.workload.project != workload.project]


def _is_for_another(draft: Draft, passed: Sequence[Claim], *, guaranteed: bool) -> bool:
    """Return whether one that waits before this one would take the room; that of a guarantee only another one may.

    Those whose claims were `passed` over are not asked.
    """
    kept = {claim.workload.id for claim in passed}
    waiting = [item.workload for item in draft.waiting if item.is_able and item.workload.id not in kept]
    before = {signature_of(each): each for each in waiting if not guaranteed or draft.ledger.is_guaranteed(each)}
    asked = list(before.values())[:NOMINATIONS_CHECKED]
    return any(draft.ledger.may_retain(other) and draft.later.find(other) is not None for other in asked)
