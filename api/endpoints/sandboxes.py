"""Endpoints of sandboxes. Everybody sees what they deny; administrators of the site make, change and give them."""

from __future__ import annotations

from api.auth.identity import Identity
from api.auth.policy import Action
from api.endpoints.access import Caller, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.sandboxes import service
from api.resources.sandboxes.schemas import SandboxChange, SandboxRequest, SandboxView
from api.resources.schemas import Done, NamePath
from api.tables.sandboxes import Sandbox

router = Router(prefix="/sandboxes", tags=["sandboxes"])


@router.get("")
@action(Action.SANDBOX_READ)
async def list_sandboxes(caller: Caller, db: Reading) -> list[SandboxView]:
    """List the sandboxes by name."""
    return [_view(sandbox, caller) for sandbox in await service.every(db)]


@router.get("/{name}")
@action(Action.SANDBOX_READ)
async def get_sandbox(name: NamePath, caller: Caller, db: Reading) -> SandboxView:
    """Show one sandbox."""
    return _view(await service.get(db, name), caller)


@router.post("", status_code=201)
@action(Action.SANDBOX_MANAGE)
async def create_sandbox(request: SandboxRequest, caller: Caller, db: Transaction) -> SandboxView:
    """Create a sandbox."""
    return _view(await service.create(db, request), caller)


@router.patch("/{name}")
@action(Action.SANDBOX_MANAGE)
async def change_sandbox(name: NamePath, request: SandboxChange, caller: Caller, db: Transaction) -> SandboxView:
    """Change a sandbox; sessions that were submitted before keep the rules of then."""
    return _view(await service.change(db, name, request), caller)


@router.delete("/{name}")
@action(Action.SANDBOX_MANAGE)
async def delete_sandbox(name: NamePath, db: Transaction) -> Done:
    """Delete a sandbox; sessions that were submitted with it keep its rules."""
    await service.delete(db, name)
    return Done()


def _view(sandbox: Sandbox, caller: Identity) -> SandboxView:
    return SandboxView.of(sandbox, service.shown_projects(sandbox, caller))
