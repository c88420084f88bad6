"""Quotas of GPUs: what a project may be given, beside those of others in its domain and in the cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.resources.projects import capacity, repository
from api.resources.projects.capacity import QuotaPeriod
from api.tables.projects import Project
from common.errors import ConflictError, ForbiddenError, InputError
from common.gpu.share import MILLI, format_gpus
from common.sentence import Moment, Sentence

NO_NODE = Sentence("no node is known yet: nothing says whether the quotas fit the cluster")


def of(project: Project) -> QuotaPeriod:
    """Return the quota of a project with its period."""
    return QuotaPeriod(project.quota_milli, project.starts_at, project.ends_at)


def hard(project: Project) -> QuotaPeriod | None:
    """Return the quota of a project where that is a hard cap."""
    return None if project.over_quota else of(project)


def beyond(project: Project) -> int:
    """Return by how many milli-GPU a project's weight is worth more than its quota, which is its weight without one."""
    return max(0, (project.over_quota_weight or 0) * MILLI - project.quota_milli)


def check_weight(project: Project, before: int, caller: Identity) -> None:
    """Refuse a weight that takes more of what is spare from other domains than the quota would, or than it did."""
    if beyond(project) > before and not caller.may(Action.PROJECT_WEIGH):
        raise ForbiddenError(
            f"you may not {Action.PROJECT_WEIGH}",
            where="over_quota_weight",
            hint=Sentence(
                "choose a weight up to the quota of {quota} GPUs, or ask an administrator",
                quota=format_gpus(project.quota_milli),
            ),
        )


def check_min_runtime(project: Project, before: int | None, caller: Identity) -> None:
    """Refuse another time for which sessions keep what other domains may have a right to, but by the site's people."""
    if project.min_runtime_s != before and not caller.may(Action.PROJECT_WEIGH):
        raise ForbiddenError(
            Sentence("you may not say how long sessions run before they are reclaimed"),
            where="min_runtime_s",
            hint=Sentence("leave it as it is, or ask an administrator of the site"),
        )


def check_limit(project: Project, *, given: Collection[str]) -> None:
    """Refuse a limit that says something else than the quota does."""
    limit, where = project.limit_milli, "limit_milli" if "limit_milli" in given else "quota_milli"
    if limit is None:
        return
    if not project.over_quota:
        raise InputError(
            Sentence("a quota that is a hard cap is the limit itself"),
            where=where if where in given else "over_quota",
            hint=Sentence("take the limit away, or let the project go over its quota"),
        )
    if limit < project.quota_milli:
        raise InputError(
            Sentence(
                "the limit would be {limit} GPUs, and the quota is {quota}",
                limit=format_gpus(limit),
                quota=format_gpus(project.quota_milli),
            ),
            where=where,
            hint=Sentence("choose a limit that is no less than the quota, or take it away"),
        )


async def check_domain(db: AsyncSession, project: Project, before: QuotaPeriod | None, field: str) -> None:
    """Refuse a quota that the domain may not have over the whole period beside those of its other projects."""
    limit = await repository.quota_of_domain(db, project.domain) if project.domain else None
    if limit is None:
        return
    others = await repository.quota_periods(db, hard_only=False, but=project.id, domain=project.domain)
    step = capacity.excess(others, before, of(project), capacity=limit, now=now())
    if step:
        raise ConflictError(
            Sentence(
                "from {at} the quotas of {domain} would come to {gpus} GPUs, and the domain may have {most}",
                at=Moment.at(step.since, seconds=True),
                domain=project.domain,
                gpus=format_gpus(step.milli),
                most=format_gpus(limit),
            ),
            where=field,
            hint=Sentence(
                "choose a smaller quota or another period, or ask an administrator of the site for a larger domain"
            ),
        )


async def check_room(db: AsyncSession, project: Project, before: QuotaPeriod | None, field: str) -> None:
    """Refuse a hard cap that the cluster cannot hold over the whole period beside those of the others."""
    milli = await repository.known_milli(db)
    quota = hard(project)
    if quota is None or milli is None:
        return
    others = await repository.quota_periods(db, hard_only=True, but=project.id)
    step = capacity.excess(others, before, quota, capacity=milli, now=now())
    if step:
        raise ConflictError(
            Sentence(
                "from {at} the hard quotas would come to {gpus} GPUs, and the cluster has {most}",
                at=Moment.at(step.since, seconds=True),
                gpus=format_gpus(step.milli),
                most=format_gpus(milli),
            ),
            where=field,
            hint=Sentence("choose a smaller quota or another period, or let the project go over its quota"),
        )


async def warnings(db: AsyncSession, projects: Sequence[Project], at: datetime) -> list[list[str]]:
    """Return for each project what there is to warn of: quotas that come to more than the cluster has."""
    milli = await repository.known_milli(db)
    if milli is None:
        return [[NO_NODE] for _ in projects]
    course = capacity.steps(await repository.quota_periods(db, hard_only=False), at)
    return [_warnings(course, project, milli) for project in projects]


def _warnings(course: Sequence[capacity.Step], project: Project, milli: int) -> list[str]:
    step = capacity.overfull(course, of(project), milli)
    if step is None:
        return []
    return [
        Sentence(
            "from {at} the quotas of all projects come to {total} GPUs, and the cluster has {there}",
            at=Moment.at(step.since, seconds=True),
            total=format_gpus(step.milli),
            there=format_gpus(milli),
        )
    ]


def moment(at: datetime) -> str:
    """Return a moment as reasons write it."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
