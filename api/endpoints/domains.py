"""Endpoints of domains. The site's administrators make them; those of a domain see theirs."""

from __future__ import annotations

from api.auth.policy import Action
from api.endpoints.access import Caller, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.domains import service
from api.resources.domains.schemas import DomainChange, DomainRequest, DomainView
from api.resources.schemas import Done, NamePath

router = Router(prefix="/domains", tags=["domains"])


@router.get("")
@action(Action.DOMAIN_READ)
async def list_domains(caller: Caller, db: Reading) -> list[DomainView]:
    """List the domains that the caller may see."""
    return [DomainView.model_validate(domain) for domain in await service.visible(db, caller)]


@router.post("", status_code=201)
@action(Action.DOMAIN_MANAGE)
async def create_domain(request: DomainRequest, db: Transaction) -> DomainView:
    """Create a domain."""
    return DomainView.model_validate(await service.create(db, request))


@router.patch("/{name}")
@action(Action.DOMAIN_MANAGE)
async def change_domain(name: NamePath, request: DomainChange, db: Transaction) -> DomainView:
    """Change a domain. Quotas that are beyond a new limit stay as they are, but grow no more."""
    return DomainView.model_validate(await service.change(db, name, request))


@router.delete("/{name}")
@action(Action.DOMAIN_MANAGE)
async def delete_domain(name: NamePath, db: Transaction) -> Done:
    """Delete a domain that no user, project or resource group belongs to."""
    await service.delete(db, name)
    return Done()
