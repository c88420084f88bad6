"""Raises of shares: whether project and domain may hold more, by the scheduler's own ledger, beside what it keeps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.resources.domains.states import sharing
from api.resources.projects import service as projects
from api.resources.projects.states import project_state
from api.resources.sessions import repository
from api.scheduler.claims import SECOND, Claim, Standing
from api.scheduler.holdings import Holdings
from api.scheduler.ledger import Ledger
from api.scheduler.snapshot import Workload
from api.scheduler.titles import whom
from api.tables.projects import Access
from api.tables.sessions import Session, State
from common.errors import ConflictError
from common.gpu.share import MILLI, format_gpus
from common.sentence import Sentence

FIELD = "gpu_milli"

HINT = Sentence("ask again when that one runs, or submit it again to let it run elsewhere")


async def still_kept(db: AsyncSession, claims: Sequence[Claim]) -> list[Claim]:
    """Return those of the claims whose sessions wait, or will."""
    if not claims:
        return []
    known = await repository.by_ids(db, [UUID(claim.workload.id) for claim in claims])
    waiting = {str(id_) for id_, session in known.items() if State.PENDING in (session.state, session.final_state)}
    return [claim for claim in claims if claim.workload.id in waiting]


@dataclass(frozen=True)
class Room:
    """What a session could get more: what its project and domain hold, and what is free on its GPUs by its parts."""

    session: Session
    ledger: Ledger
    moment: datetime
    gpus: Sequence[tuple[str, str, int, int]]
    """Node and GPU, how many parts the session has of it, and what is free there in milli-GPU."""

    @classmethod
    async def of(cls, db: AsyncSession, session: Session) -> Room:
        """Return that of a session that runs, with nothing kept for anybody."""
        moment = now()
        grown = Counter(
            (container.node_id, share.uuid)
            for container in session.containers
            for share in container.gpu_shares
            if share.milli < MILLI
        )
        used = await repository.held_on(db, {node_id for node_id, _ in grown}, {uuid for _, uuid in grown})
        nodes = {container.node_id: container.node for container in session.containers}
        gpus = []
        for (node_id, uuid), parts in sorted(grown.items(), key=lambda item: item[0][1]):
            node = nodes[node_id]
            free = MILLI - used.get((node_id, uuid), 0) - node.orphaned_milli.get(uuid, 0)
            gpus.append((node.name, uuid, parts, free))
        return cls(session, await _ledger(db, session, moment), moment, gpus)

    def check(self, wanted: int, kept: Sequence[Claim] = ()) -> None:
        """Raise ConflictError where there is no space for that share, or only what is kept for those who wait."""
        more = wanted - self.session.gpu_milli
        self._check_amount(_workload(self.session, self.session.replicas * more, self.moment), kept)
        waiting = _waiting_for(kept)
        for node, uuid, parts, free in self.gpus:
            self._check_gpu(node, uuid, free=free, more=parts * more, waiting=waiting.get((node, uuid), ()))

    def has(self, wanted: int) -> bool:
        """Return whether there is space for that share, whoever waits."""
        try:
            self.check(wanted)
        except ConflictError:
            return False
        return True

    def _check_amount(self, more: Workload, kept: Sequence[Claim]) -> None:
        """Raise where project or domain may not hold so much more, or not beside what is kept for others."""
        if not self.ledger.may_hold(more):
            raise _too_much(self.ledger, more)
        beside = _with(self.ledger, kept, self.moment)
        if not beside.may_hold(more):
            raise _kept(beside, more)

    def _check_gpu(
        self, node: str, uuid: str, *, free: int, more: int, waiting: Sequence[tuple[Workload, int]]
    ) -> None:
        """Raise where a GPU has no room for so much more, or only what is kept for those who wait."""
        if more > free:
            raise ConflictError(
                Sentence(
                    "{free} GPU is free on {gpu} of {node}, and {more} more is asked for",
                    free=format_gpus(max(free, 0)),
                    gpu=uuid,
                    node=node,
                    more=format_gpus(more),
                ),
                where=FIELD,
                hint=Sentence("ask for less, or submit it again to let it run elsewhere"),
            )
        if more > free - sum(milli for _, milli in waiting):
            # never how much: others would learn the size of one that they may not see
            holders = whom([workload for workload, _ in waiting], self.session.project.name)
            told = Sentence(
                "room on {gpu} of {node} is kept for {whom}, served first", gpu=uuid, node=node, whom=holders
            )
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


def _waiting_for(claims: Sequence[Claim]) -> Mapping[tuple[str, str], Sequence[tuple[Workload, int]]]:
    """Return for whom the claims keep something of a GPU of a node, and how much."""
    found: defaultdict[tuple[str, str], list[tuple[Workload, int]]] = defaultdict(list)
    for claim in claims:
        milli: Counter[tuple[str, str]] = Counter()
        for place in claim.places:
            milli.update({(place.node, share.uuid): share.milli for share in place.shares})
        for gpu, kept in milli.items():
            found[gpu].append((claim.workload, kept))
    return found


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
        hint = Sentence("stop one of its sessions, or ask for a larger quota")
        if project.over_quota:
            hint = Sentence("stop one of its sessions, or ask for a larger limit")
        told = Sentence(
            "{project} holds {held} of its {most} GPU, and {more} more is asked for",
            project=project.name,
            held=format_gpus(own.held),
            most=format_gpus(project.cap_milli),
            more=format_gpus(extra),
        )
        return ConflictError(told, where=FIELD, hint=hint)
    if not ledger.domains.beyond(more, now=True):
        told = Sentence(
            "{project} holds {held} of its {most} GPU by work that cannot be reclaimed, and {more} more is asked for",
            project=project.name,
            held=format_gpus(own.fixed_held),
            most=format_gpus(project.quota_milli),
            more=format_gpus(extra),
        )
        hint = Sentence("stop one of its sessions, or ask for a larger quota")
        return ConflictError(told, where=FIELD, hint=hint)
    domain = ledger.domains.of_project[project.name]
    held, most = ledger.domains.retained(domain, now=True), ledger.domains.domains[domain].limit_milli or 0
    return ConflictError(
        Sentence(
            "the projects of {domain} hold {held} of the {most} GPU that it may have, and {more} more is asked for",
            domain=domain,
            held=format_gpus(held),
            most=format_gpus(most),
            more=format_gpus(extra),
        ),
        where=FIELD,
        hint=Sentence("stop one of their sessions, or ask for a larger limit of {domain}", domain=domain),
    )


def _kept(ledger: Ledger, more: Workload) -> ConflictError:
    """Return for whom that is kept which would do otherwise, without how much."""
    claims = ledger.claims
    deferred = [each for each in claims.deferred(more.project, more) if each.kept() or each.kept_of_cap()]
    of_domain = ledger.domains.members.get(ledger.domains.of_project.get(more.project, ""), frozenset())
    owners = {more.project, *of_domain}
    starting = [each for each in claims if each.standing is Standing.NOMINATED and each.workload.project in owners]
    holders = whom([each.workload for each in (*deferred, *starting)], more.project)
    told = Sentence(
        "{project} keeps some of what it may have for {whom}, served first", project=more.project, whom=holders
    )
    return ConflictError(told, where=FIELD, hint=Sentence("ask again when that one runs"))


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * SECOND)
