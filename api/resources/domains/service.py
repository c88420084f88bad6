"""Rules of domains."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.database import CAPACITY_LOCK, exclusively
from api.resources.domains import repository
from api.resources.domains.schemas import DomainChange, DomainRequest
from api.resources.projects import capacity
from api.resources.projects import repository as projects
from api.tables.domains import Domain
from common.errors import ConflictError, InputError, NotFoundError
from common.gpu.units import format_gpus
from common.sentence import Sentence


async def visible(db: AsyncSession, caller: Identity) -> Sequence[Domain]:
    """Return the domains that the caller may see: all, or the caller's own."""
    reach = caller.reach(Action.DOMAIN_READ)
    return await repository.every(db, None if reach.everything else reach.domain)


async def get(db: AsyncSession, name: str) -> Domain:
    """Return one domain; raises NotFoundError."""
    domain = await repository.by_name(db, name)
    if domain is None:
        raise NotFoundError(
            Sentence("there is no domain {name}", name=name), where="name", hint=Sentence("list the domains")
        )
    return domain


async def that_share(db: AsyncSession) -> Sequence[Domain]:
    """Return the domains whose projects share inside of them."""
    return [domain for domain in await repository.every(db, None) if domain.shares]


async def create(db: AsyncSession, request: DomainRequest) -> Domain:
    """Create a domain; raises ConflictError where the name is taken."""
    if await repository.by_name(db, request.name):
        raise ConflictError(
            Sentence("there is a domain {name} already", name=request.name),
            where="name",
            hint=Sentence("choose another name"),
        )
    await _check_policy(db, request.policy)
    domain = Domain(**request.model_dump())
    _check_shares(domain, request.model_fields_set)
    repository.add(db, domain)
    await db.flush()
    return domain


async def change(db: AsyncSession, name: str, request: DomainChange) -> Domain:
    """Change a domain; raises NotFoundError. Quotas that are beyond a new limit stay, but grow no more."""
    await exclusively(db, CAPACITY_LOCK)
    domain = await get(db, name)
    await _check_policy(db, request.policy)
    for field in request.model_fields_set:
        setattr(domain, field, getattr(request, field))
    _check_shares(domain, request.model_fields_set)
    await _check_limit(db, domain, request.model_fields_set)
    await db.flush()
    return domain


async def delete(db: AsyncSession, name: str) -> None:
    """Delete a domain that nothing belongs to; raises NotFoundError, or ConflictError that says what does."""
    domain = await get(db, name)
    left = {kind: count for kind, count in (await repository.contents(db, name)).items() if count}
    if left:
        text = ", ".join(f"{count} {kind}" for kind, count in left.items())
        raise ConflictError(
            Sentence("{name} still has {text}", name=name, text=text),
            where="name",
            hint=Sentence("move or delete them first"),
        )
    await repository.delete(db, domain)


def _check_shares(domain: Domain, given: Collection[str]) -> None:
    """Refuse what says nothing where a domain does not share, and a limit below what is guaranteed."""
    said = [name for name in ("over_quota_weight", "limit_milli") if getattr(domain, name) is not None]
    if said and not domain.shares:
        where = next((name for name in said if name in given), "shares")
        raise InputError(
            Sentence("a weight and a limit are of domains whose projects share inside of them"),
            where=where,
            hint=Sentence("set shares, or take the weight and the limit away"),
        )
    if domain.limit_milli is None:
        return
    if domain.quota_milli is None:
        raise InputError(
            Sentence("without a quota of the domain its projects may have more guaranteed than the limit"),
            where="limit_milli" if "limit_milli" in given else "quota_milli",
            hint=Sentence("give a quota that is no more than the limit, or take the limit away"),
        )
    if domain.limit_milli < domain.quota_milli:
        limit, quota = format_gpus(domain.limit_milli), format_gpus(domain.quota_milli)
        raise InputError(
            Sentence("the limit would be {limit} GPUs, and the quota is {quota}", limit=limit, quota=quota),
            where="limit_milli" if "limit_milli" in given else "quota_milli",
            hint=Sentence("choose a limit that is no less than the quota, or take it away"),
        )


async def _check_limit(db: AsyncSession, domain: Domain, given: Collection[str]) -> None:
    """Refuse a limit below what the quotas of the projects come to at some time: a guarantee would not be one."""
    if domain.limit_milli is None:
        return
    course = capacity.steps(await projects.quota_periods(db, hard_only=False, domain=domain.name), now())
    most = max((step.milli for step in course), default=0)
    if most > domain.limit_milli:
        raise ConflictError(
            Sentence(
                "the quotas of its projects come to {most} GPUs, and the limit would be {limit}",
                most=format_gpus(most),
                limit=format_gpus(domain.limit_milli),
            ),
            where="limit_milli" if "limit_milli" in given else "shares",
            hint=Sentence("choose a larger limit, or make the quotas of its projects smaller first"),
        )


async def _check_policy(db: AsyncSession, name: str | None) -> None:
    if name is not None and not await repository.is_policy(db, name):
        raise InputError(
            Sentence("there is no user policy {name}", name=name),
            where="policy",
            hint=Sentence("create the policy first"),
        )
