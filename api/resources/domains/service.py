"""Rules of domains."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.database import CAPACITY_LOCK, exclusively
from api.resources.domains import repository
from api.resources.domains.schemas import DomainChange, DomainRequest
from api.tables.domains import Domain
from common.errors import ConflictError, InputError, NotFoundError


async def visible(db: AsyncSession, caller: Identity) -> Sequence[Domain]:
    """Return the domains that the caller may see: all, or the caller's own."""
    reach = caller.reach(Action.DOMAIN_READ)
    return await repository.every(db, None if reach.everything else reach.domain)


async def create(db: AsyncSession, request: DomainRequest) -> Domain:
    """Create a domain; raises ConflictError where the name is taken."""
    if await repository.by_name(db, request.name):
        raise ConflictError(f"there is a domain {request.name} already", where="name", hint="choose another name")
    await _check_policy(db, request.policy)
    domain = Domain(**request.model_dump())
    repository.add(db, domain)
    await db.flush()
    return domain


async def change(db: AsyncSession, name: str, request: DomainChange) -> Domain:
    """Change a domain; raises NotFoundError. Quotas that are beyond a new limit stay, but grow no more."""
    await exclusively(db, CAPACITY_LOCK)
    domain = await _get(db, name)
    await _check_policy(db, request.policy)
    for field in request.model_fields_set:
        setattr(domain, field, getattr(request, field))
    await db.flush()
    return domain


async def delete(db: AsyncSession, name: str) -> None:
    """Delete a domain that nothing belongs to; raises NotFoundError, or ConflictError that says what does."""
    domain = await _get(db, name)
    left = {kind: count for kind, count in (await repository.contents(db, name)).items() if count}
    if left:
        text = ", ".join(f"{count} {kind}" for kind, count in left.items())
        raise ConflictError(f"{name} still has {text}", where="name", hint="move or delete them first")
    await repository.delete(db, domain)


async def _check_policy(db: AsyncSession, name: str | None) -> None:
    if name is not None and not await repository.is_policy(db, name):
        raise InputError(f"there is no user policy {name}", where="policy", hint="create the policy first")


async def _get(db: AsyncSession, name: str) -> Domain:
    domain = await repository.by_name(db, name)
    if domain is None:
        raise NotFoundError(f"there is no domain {name}", where="name", hint="list the domains")
    return domain
