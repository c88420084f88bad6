"""Endpoints of user policies. Administrators see them, those of the site change them."""

from __future__ import annotations

from api.auth.policy import Action
from api.endpoints.access import action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.schemas import Done, NamePath
from api.resources.user_policies import service
from api.resources.user_policies.schemas import PolicyChange, PolicyRequest, PolicyView

router = Router(prefix="/user-policies", tags=["user policies"])


@router.get("")
@action(Action.POLICY_READ)
async def list_policies(db: Reading) -> list[PolicyView]:
    """List the user policies."""
    return [PolicyView.model_validate(policy) for policy in await service.every(db)]


@router.get("/{name}")
@action(Action.POLICY_READ)
async def get_policy(name: NamePath, db: Reading) -> PolicyView:
    """Show one user policy."""
    return PolicyView.model_validate(await service.get(db, name))


@router.post("", status_code=201)
@action(Action.POLICY_MANAGE)
async def create_policy(request: PolicyRequest, db: Transaction) -> PolicyView:
    """Create a user policy."""
    return PolicyView.model_validate(await service.create(db, request))


@router.patch("/{name}")
@action(Action.POLICY_MANAGE)
async def change_policy(name: NamePath, request: PolicyChange, db: Transaction) -> PolicyView:
    """Change a user policy; it holds for what is submitted from now on."""
    return PolicyView.model_validate(await service.change(db, name, request))


@router.delete("/{name}")
@action(Action.POLICY_MANAGE)
async def delete_policy(name: NamePath, db: Transaction) -> Done:
    """Delete a user policy that no user has."""
    await service.delete(db, name)
    return Done()
