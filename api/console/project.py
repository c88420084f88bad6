"""One project: what it may have, who is in it, and the changes that managers and administrators make."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Form, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router, back_to
from api.control.manager import WakeAfterwards
from api.endpoints import auditing, projects
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.resources.projects import service
from api.resources.projects.schemas import ProjectChange, ProjectRequest
from api.resources.schemas import NamePath
from api.resources.volumes.schemas import AfterProject

LISTS = ("members", "managers")
MINUTE = len("2026-01-31T23:59")
"""So much of a moment is in a form."""

router = Router(prefix="/projects")
Gpus = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class NewForm(BaseModel):
    """A project to create; without an end it holds for ever."""

    name: forms.Line = ""
    description: forms.Line = ""
    quota: Gpus = 0
    over_quota: bool = False
    ends_at: forms.Line = ""
    members: forms.Line = ""


class ChangeForm(BaseModel):
    """What to change: what it may have, or who comes in and who goes; names are parted by spaces or commas.

    The quota is in GPUs. Where it is `described`, the form has its description and its end, too, to the minute in UTC;
    that is empty where it is open.
    """

    shown: forms.Shown = None
    quota: Gpus | None = None
    over_quota: bool | None = None
    described: bool = False
    description: forms.Line = ""
    ends_at: forms.Line = ""
    shown_end: forms.Line = ""
    add_members: forms.Line = ""
    remove_members: forms.Line = ""
    add_managers: forms.Line = ""
    remove_managers: forms.Line = ""


@router.get("/{name}")
@action(Action.PROJECT_READ)
async def show_project(*, request: Request, name: NamePath, caller: Caller, db: Reading) -> Response:
    """Show a project."""
    found = await service.get(db, name, caller, "name", people=True)
    can = {
        "members": caller.may(Action.PROJECT_MEMBERS, project=found),
        "change": caller.may(Action.PROJECT_CHANGE, project=found),
        "delete": caller.may(Action.PROJECT_DELETE, project=found),
    }
    values = {"project": await projects.get_project(name, caller, db), "can": can, "minute": MINUTE}
    return await pages.live(request, "project.html", "project_live.html", values)


@router.post("", status_code=204)
@action(Action.PROJECT_CREATE)
async def create_project(form: Annotated[NewForm, Form()], caller: Caller, db: Transaction, response: Response) -> None:
    """Create a project, and show it."""
    body: dict[str, Any] = {"name": form.name, "description": form.description, "over_quota": form.over_quota}
    body |= {"quota_milli": forms.whole("quota_milli", form.quota, 1000), "members": forms.names(form.members)}
    body["period"] = {"ends_at": f"{form.ends_at}T00:00:00Z" if form.ends_at else None}
    made = await projects.create_project(forms.checked(ProjectRequest, body), caller, db)
    response.headers["HX-Redirect"] = f"/projects/{made.name}"


async def _change(form: Annotated[ChangeForm, Form()], connection: HTTPConnection) -> ProjectChange:
    body: dict[str, Any] = {}
    if form.quota is not None:
        body["quota_milli"] = forms.whole("quota_milli", form.quota, 1000)
    if form.over_quota is not None:
        body["over_quota"] = form.over_quota
    if form.described:
        body["description"] = form.description
        if form.ends_at != form.shown_end:
            body["period"] = {"ends_at": f"{form.ends_at}Z" if form.ends_at else None}
    change = forms.differing(ProjectChange, body | forms.lists(form, *LISTS), form.shown)
    auditing.needs(connection, service.needed(change))
    return change


@router.post("/{name}/delete", status_code=204, dependencies=[back_to("/projects")])
@action(Action.PROJECT_DELETE)
async def delete_project(
    *,
    name: NamePath,
    caller: Caller,
    db: Transaction,
    _wake: WakeAfterwards,
    volumes: Annotated[Literal["keep", "delete"], Form()] = "keep",
) -> None:
    """Delete a project that has no live session; its volumes stay without a project unless they go with it."""
    await projects.delete_project(name=name, caller=caller, db=db, _wake=_wake, volumes_=AfterProject(volumes))


@router.post("/{name}", status_code=204, dependencies=[REFRESH])
@action(Action.PROJECT_MEMBERS)
async def change_project(
    *,
    name: NamePath,
    form: Annotated[ChangeForm, Form()],
    change: Annotated[ProjectChange, Depends(_change)],
    caller: Caller,
    db: Transaction,
    response: Response,
    _wake: WakeAfterwards,
) -> None:
    """Change a project; its managers change who is in it."""
    found = await projects.get_project(name, caller, db)
    forms.check_leaving(change, found, *LISTS)
    await service.change(db, name, change, caller)
    if form.shown is not None:
        # what the form goes on from is what holds now
        response.headers["HX-Redirect"] = f"/projects/{name}"
