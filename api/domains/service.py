"""Rules of domains."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api.domains import repository
from api.domains.models import Domain
from api.domains.schemas import DomainRequest
from api.identity import Identity
from api.policy import Action
from reservoir.errors import ConflictError, NotFoundError


async def visible(db: AsyncSession, caller: Identity) -> Sequence[Domain]:
    """Return the domains that the caller may see: all, or the caller's own."""
    reach = caller.reach(Action.DOMAIN_READ)
    return await repository.every(db, None if reach.everything else reach.domain)


async def create(db: AsyncSession, request: DomainRequest) -> Domain:
    """Create a domain; raises ConflictError where the name is taken."""
    if await repository.by_name(db, request.name):
        raise ConflictError(f"there is a domain {request.name} already", where="name", cure="choose another name")
    domain = Domain(**request.model_dump())
    repository.add(db, domain)
    await db.flush()
    return domain


async def delete(db: AsyncSession, name: str) -> None:
    """Delete a domain that nothing belongs to; raises NotFoundError, or ConflictError that says what does."""
    domain = await repository.by_name(db, name)
    if domain is None:
        raise NotFoundError(f"there is no domain {name}", where="name", cure="list the domains")
    left = {kind: count for kind, count in (await repository.contents(db, name)).items() if count}
    if left:
        text = ", ".join(f"{count} {kind}" for kind, count in left.items())
        raise ConflictError(f"{name} still has {text}", where="name", cure="move or delete them first")
    await repository.delete(db, domain)
