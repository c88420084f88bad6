"""Resource groups: which nodes belong to one, who may use it, and the changes that administrators make."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Form, Request, Response
from pydantic import BaseModel
from sqlalchemy import Table
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router, back_to
from api.control.manager import WakeAfterwards
from api.endpoints import auditing, groups
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.groups import service
from api.resources.groups.schemas import GroupChange, GroupRequest
from api.resources.schemas import NamePath
from api.tables.base import Base
from api.tables.groups import ResourceGroup, group_nodes, group_projects, group_users

OF_GROUPS: tuple[type[Base] | Table, ...] = (*stamps.PEOPLE, ResourceGroup, group_nodes, group_users, group_projects)
"""What says how groups are. Nodes write often: those that join by what they are come within a minute."""
LISTS = ("nodes", "users", "projects")
SAID = {"description", "purpose", "gpu_model", "switch", "region"}

router = Router(prefix="/resource-groups")


class GroupForm(BaseModel):
    """A resource group to create; names are parted by spaces or commas."""

    name: forms.Line = ""
    description: forms.Line = ""
    nodes: forms.Line = ""
    gpu_model: forms.Line = ""
    open: bool = False
    users: forms.Line = ""
    projects: forms.Line = ""
    domain: forms.Line = ""


class ChangeForm(BaseModel):
    """What to change: for whom it is, what comes in and what goes, and where it is `described`, all that is said of it.

    Where it is `moved`, it belongs to another domain, or to none any more. A browser sends what is empty as it does
    what is left out.
    """

    shown: forms.Shown = None
    open: bool | None = None
    described: bool = False
    moved: bool = False
    description: forms.Line = ""
    purpose: forms.Line = ""
    gpu_model: forms.Line = ""
    switch: forms.Line = ""
    region: forms.Line = ""
    domain: forms.Line = ""
    add_nodes: forms.Line = ""
    remove_nodes: forms.Line = ""
    add_users: forms.Line = ""
    remove_users: forms.Line = ""
    add_projects: forms.Line = ""
    remove_projects: forms.Line = ""


@router.get("")
@action(Action.GROUP_READ)
async def list_groups(request: Request, caller: Caller, db: Reading) -> Response:
    """Show the resource groups that the caller may use or looks after, by name."""
    stamp = await pages.stamp(request, db, OF_GROUPS, caller.id)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {"groups": await groups.list_groups(caller, db)}
    return await pages.live(request, "groups.html", "groups_live.html", values, stamp=stamp)


@router.get("/{name}")
@action(Action.GROUP_READ)
async def show_group(name: NamePath, request: Request, caller: Caller, db: Reading) -> Response:
    """Show a resource group."""
    stamp = await pages.stamp(request, db, OF_GROUPS, caller.id, name)
    if answer := pages.unchanged(request, stamp):
        return answer
    found = await groups.get_group(name, caller, db)
    can = {
        "allow": caller.may(Action.GROUP_ALLOW, domain=found.domain),
        "manage": caller.may(Action.GROUP_MANAGE, domain=found.domain),
    }
    return await pages.live(request, "group.html", "group_live.html", {"group": found, "can": can}, stamp=stamp)


@router.post("", status_code=204)
@action(Action.GROUP_MANAGE)
async def create_group(
    form: Annotated[GroupForm, Form()], caller: Caller, db: Transaction, response: Response, wake: WakeAfterwards
) -> None:
    """Create a resource group, and show it."""
    body = form.model_dump() | {field: forms.names(getattr(form, field)) for field in LISTS}
    body["domain"] = form.domain or None
    made = await groups.create_group(forms.checked(GroupRequest, body), caller, db, wake)
    response.headers["HX-Redirect"] = f"/resource-groups/{made.name}"


async def _change(form: Annotated[ChangeForm, Form()], connection: HTTPConnection) -> GroupChange:
    body: dict[str, Any] = {} if form.open is None else {"open": form.open}
    if form.described:
        body |= form.model_dump(include=SAID)
    if form.moved:
        body["domain"] = form.domain or None
    change = forms.differing(GroupChange, body | forms.lists(form, *LISTS), form.shown)
    auditing.needs(connection, service.needed(change))
    return change


@router.post("/{name}", status_code=204, dependencies=[REFRESH])
@action(Action.GROUP_ALLOW)
async def change_group(
    *,
    name: NamePath,
    form: Annotated[ChangeForm, Form()],
    change: Annotated[GroupChange, Depends(_change)],
    caller: Caller,
    db: Transaction,
    response: Response,
    _wake: WakeAfterwards,
) -> None:
    """Change what belongs to a resource group and who may use it; sessions that run in it go on."""
    found = await groups.get_group(name, caller, db)
    forms.check_leaving(change, found, *LISTS)
    await service.change(db, name, change, caller)
    if form.shown is not None:
        # what the form goes on from is what holds now
        response.headers["HX-Redirect"] = f"/resource-groups/{name}"


@router.post("/{name}/delete", status_code=204, dependencies=[back_to("/resource-groups")])
@action(Action.GROUP_MANAGE)
async def delete_group(name: NamePath, caller: Caller, db: Transaction, wake: WakeAfterwards) -> None:
    """Delete a resource group that no project keeps to and no live session asks for."""
    await groups.delete_group(name, caller, db, wake)
