"""Endpoints of resource groups. Everybody sees those for them; administrators create, change and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.auth.identity import Identity
from api.auth.policy import Action
from api.control.manager import WakeAfterwards
from api.endpoints import auditing
from api.endpoints.access import Caller, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.groups import service
from api.resources.groups.schemas import GroupChange, GroupRequest, GroupView
from api.resources.schemas import Done, NamePath
from api.tables.groups import ResourceGroup

router = Router(prefix="/resource-groups", tags=["resource groups"])


@router.get("")
@action(Action.GROUP_READ)
async def list_groups(caller: Caller, db: Reading) -> list[GroupView]:
    """List the resource groups that the caller may use or looks after."""
    return await _views(db, await service.visible(db, caller), caller)


@router.get("/{name}")
@action(Action.GROUP_READ)
async def get_group(name: NamePath, caller: Caller, db: Reading) -> GroupView:
    """Show one resource group."""
    return await _view(db, await service.get(db, name, caller), caller)


@router.post("", status_code=201)
@action(Action.GROUP_MANAGE)
async def create_group(request: GroupRequest, caller: Caller, db: Transaction, _wake: WakeAfterwards) -> GroupView:
    """Create a resource group."""
    return await _view(db, await service.create(db, request), caller)


async def _change(request: GroupChange, connection: HTTPConnection) -> GroupChange:
    auditing.needs(connection, service.needed(request))
    return request


@router.patch("/{name}")
@action(Action.GROUP_ALLOW)
async def change_group(
    *,
    name: NamePath,
    request: Annotated[GroupChange, Depends(_change)],
    caller: Caller,
    db: Transaction,
    _wake: WakeAfterwards,
) -> GroupView:
    """Change what belongs to a resource group and who may use it; sessions that run in it go on."""
    return await _view(db, await service.change(db, name, request, caller), caller)


@router.delete("/{name}")
@action(Action.GROUP_MANAGE)
async def delete_group(name: NamePath, caller: Caller, db: Transaction, _wake: WakeAfterwards) -> Done:
    """Delete a resource group that no project keeps to and no live session asks for."""
    await service.delete(db, name, caller)
    return Done()


async def _view(db: AsyncSession, group: ResourceGroup, caller: Identity) -> GroupView:
    return (await _views(db, [group], caller))[0]


async def _views(db: AsyncSession, groups: Sequence[ResourceGroup], caller: Identity) -> list[GroupView]:
    present = await service.present(db)
    views = []
    for group in groups:
        everybody = caller.may(Action.GROUP_OVERSEE, domain=group.domain)
        views.append(
            GroupView.of(
                group,
                present=present.get(group.name, []),
                users=[user.name for user in group.users if everybody or user.id == caller.id],
                projects=[project.name for project in group.projects if everybody or project.id in caller.member_of],
            )
        )
    return views
