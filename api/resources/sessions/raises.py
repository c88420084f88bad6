"""Raises of shares: whether project and domain may hold more, by the scheduler's own ledger, beside what it keeps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil
from types import MappingProxyType
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.resources.domains.states import sharing
from api.resources.projects import service as projects
from api.resources.projects.states import project_state
from api.resources.sessions import repository
from api.scheduler.claims import SECOND, Claim
from api.scheduler.holdings import Holdings
from api.scheduler.ledger import Ledger
from api.scheduler.snapshot import Workload
from api.scheduler.titles import whom
from api.tables.projects import Access
from api.tables.sessions import Session, State
from common.errors import ConflictError
from common.gpu.share import format_gpus
from common.sentence import Sentence

FIELD = "gpu_milli"

Waiting = Mapping[tuple[str, str], Sequence[tuple[Workload, int]]]
"""Who waits for a GPU of a node, and for how much of it in milli-GPU."""

NOBODY: Waiting = MappingProxyType({})
HINT = "ask again when that one runs, or submit it again to let it run elsewhere"


async def still_kept(db: AsyncSession, claims: Sequence[Claim]) -> list[Claim]:
    """Return those of the claims whose sessions wait, or will."""
    known = await repository.by_ids(db, [UUID(claim.workload.id) for claim in claims])
    waiting = {str(id_) for id_, session in known.items() if State.PENDING in (session.state, session.final_state)}
    return [claim for claim in claims if claim.workload.id in waiting]


def waiting_for(claims: Sequence[Claim]) -> Waiting:
    """Return what the claims keep of each GPU."""
    found: defaultdict[tuple[str, str], list[tuple[Workload, int]]] = defaultdict(list)
    for claim in claims:
        milli: Counter[tuple[str, str]] = Counter()
        for place in claim.places:
            milli.update({(place.node, share.uuid): share.milli for share in place.shares})
        for gpu, kept in milli.items():
            found[gpu].append((claim.workload, kept))
    return found


async def check_amount(db: AsyncSession, session: Session, extra: int, kept: Sequence[Claim] = ()) -> None:
    """Raise ConflictError where project or domain may not hold so much more, or not beside what is kept for others."""
    moment = now()
    bare = await _ledger(db, session, moment)
    more = _workload(session, extra, moment)
    if not bare.may_hold(more):
        raise _too_much(bare, more)
    if not kept:
        return
    ledger = _with(bare, kept, moment)
    if not ledger.may_hold(more):
        raise _kept(ledger, more)


def check_gpu(session: Session, node: str, uuid: str, *, free: int, more: int, waiting: Waiting) -> None:
    """Raise ConflictError where a GPU has no room for so much more, or only what is kept for those who wait."""
    if more > free:
        raise ConflictError(
            f"{format_gpus(max(free, 0))} GPU is free on {uuid} of {node}, and {format_gpus(more)} more is asked for",
            where=FIELD,
            hint="ask for less, or submit it again to let it run elsewhere",
        )
    found = waiting.get((node, uuid), ())
    if more > free - sum(milli for _, milli in found):
        # never how much: others would learn the size of one that they may not see
        holders = whom([workload for workload, _ in found], session.project.name)
        told = Sentence("room on {gpu} of {node} is kept for {whom}, served first", gpu=uuid, node=node, whom=holders)
        raise ConflictError(told, where=FIELD, hint=HINT)


async def _ledger(db: AsyncSession, session: Session, moment: datetime) -> Ledger:
    """Return what the project holds, and the others of its domain where they share; nothing is kept in it."""
    project = session.project
    domains = {domain.name: domain for domain in await sharing(db, [project])}
    shares = project.domain in domains
    known = [each for each in await projects.every(db) if each.domain == project.domain] if shares else [project]
    held = await repository.held_by_projects(db, [each.id for each in known])
    names = {each.id: each.name for each in known}
    holdings = {names[id_]: Holdings(milli, milli, fixed, fixed) for id_, (milli, fixed) in held.items()}
    return Ledger.of({each.name: project_state(each, moment) for each in known}, holdings, domains=domains)


def _with(bare: Ledger, kept: Sequence[Claim], moment: datetime) -> Ledger:
    """Return a ledger with what is kept."""
    ledger = Ledger.of(bare.projects, bare.holdings, _micros(moment), domains=bare.domains.domains)
    for claim in kept:
        ledger.claims.add(claim)
    return ledger


def _workload(session: Session, extra: int, moment: datetime) -> Workload:
    """Return what is added to the session as a workload of its own, which ends when the session does."""
    left = (session.expires_at - moment).total_seconds() if session.expires_at else 0
    return Workload(
        id=str(session.id),
        project=session.project.name,
        submitted_at=_micros(moment),
        name=session.name,
        gpu_milli=extra,
        preemptible=session.preemptible,
        priority=session.priority,
        private=session.access is Access.PRIVATE,
        limit_s=max(1, ceil(left)) if session.expires_at else 0,
    )


def _too_much(ledger: Ledger, more: Workload) -> ConflictError:
    own, project = ledger.holdings_of(more.project), ledger.project(more.project)
    extra = more.total_milli
    if own.held + extra > project.cap_milli:
        bound = "limit" if project.over_quota else "quota"
        return _no_quota(project.name, own.held, project.cap_milli, extra, bound=bound)
    if not ledger.domains.beyond(more, now=True):
        kind = " by work that cannot be reclaimed"
        return _no_quota(project.name, own.fixed_held, project.quota_milli, extra, kind)
    domain = ledger.domains.of_project[project.name]
    held, most = ledger.domains.retained(domain, now=True), ledger.domains.domains[domain].limit_milli or 0
    return ConflictError(
        f"the projects of {domain} hold {format_gpus(held)} of the {format_gpus(most)} GPU that it may have, "
        f"and {format_gpus(extra)} more is asked for",
        where=FIELD,
        hint=f"stop one of their sessions, or ask for a larger limit of {domain}",
    )


def _no_quota(project: str, held: int, most: int, extra: int, kind: str = "", *, bound: str = "quota") -> ConflictError:
    return ConflictError(
        f"{project} holds {format_gpus(held)} of its {format_gpus(most)} GPU{kind}, "
        f"and {format_gpus(extra)} more is asked for",
        where=FIELD,
        hint=f"stop one of its sessions, or ask for a larger {bound}",
    )


def _kept(ledger: Ledger, more: Workload) -> ConflictError:
    """Return for whom that is kept which would do otherwise, without how much."""
    claims = ledger.claims
    deferred = [each for each in claims.deferred(more.project, more) if each.kept() or each.kept_of_cap()]
    members = ledger.domains.members.get(ledger.domains.of_project.get(more.project, ""), frozenset())
    starting = [each for name in sorted({more.project, *members}) for each in claims.about_to_start(name)]
    holders = whom([each.workload for each in (*deferred, *starting)], more.project)
    told = Sentence(
        "{project} keeps some of what it may have for {whom}, served first", project=more.project, whom=holders
    )
    return ConflictError(told, where=FIELD, hint="ask again when that one runs")


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * SECOND)
