"""One project: what it may have, who is in it, and the changes that managers and administrators make."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Form, Request, Response
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.auth.identity import Identity
from api.auth.policy import Action
from api.console import forms, pages, project_forms
from api.console.project_forms import ChangeForm, NewForm
from api.console.routes import REFRESH, Router, back_to
from api.console.texts import current
from api.control.manager import WakeAfterwards
from api.endpoints import auditing, projects
from api.endpoints import volumes as volume_endpoints
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import session_search, stamps
from api.lists.session_search import LIVE, Search
from api.resources.images import service as images
from api.resources.projects import service
from api.resources.projects.schemas import ProjectChange, ProjectRequest
from api.resources.schemas import NamePath
from api.resources.volumes import service as volumes
from api.resources.volumes.schemas import AfterProject
from api.tables.groups import ResourceGroup
from api.tables.images import Image, image_projects
from api.tables.projects import Project
from api.tables.sessions import Session, State
from api.tables.volumes import SessionVolume, Volume

LISTS = ("members", "managers")
SHOWN = 50
"""So many sessions, images, volumes and people of a project its page has at most."""
OF_PROJECT: stamps.Tables = (*stamps.PEOPLE, Session, Image, image_projects, Volume, SessionVolume, ResourceGroup)
"""What says how a project is. Nodes write often: what their number makes of its quota comes within a minute."""

router = Router(prefix="/projects")


@router.get("/{name}")
@action(Action.PROJECT_READ)
async def show_project(*, request: Request, name: NamePath, caller: Caller, db: Reading) -> Response:
    """Show a project: what it may have, and who holds what of it."""
    stamp = await pages.stamp(request, db, OF_PROJECT, caller.id, name, current.get())
    if answer := pages.unchanged(request, stamp):
        return answer
    found = await service.get(db, name, caller, "name", people=True)
    can = {
        "members": caller.may(Action.PROJECT_MEMBERS, project=found),
        "change": caller.may(Action.PROJECT_CHANGE, project=found),
        "delete": caller.may(Action.PROJECT_DELETE, project=found),
        "weigh": caller.may(Action.PROJECT_WEIGH, project=found),
    }
    values = {
        "project": await projects.get_project(name, caller, db),
        "can": can,
        "kinds": project_forms.KINDS,
        "settings": project_forms.SETTINGS - ({"over_quota_weight"} if not can["weigh"] else set()),
        "most": SHOWN,
        "groups": await project_forms.groups_for(db, caller, found.domain) if can["change"] else [],
        **await _held(db, found, caller),
    }
    return await pages.live(request, "project.html", "project_live.html", values, stamp=stamp)


async def _held(db: AsyncSession, project: Project, caller: Identity) -> dict[str, Any]:
    """Return the live sessions of a project with how many are in each state, and the images and volumes it may use."""
    search = Search(states=LIVE, project_id=project.id)
    sessions = await session_search.lines(db, caller, search, limit=SHOWN)
    usable = await images.visible(db, caller, project.name)
    mine = await volumes.visible(db, caller, project.name)
    return {
        "sessions": sessions.lines,
        "counts": [(state, sessions.counts[state]) for state in State if sessions.counts.get(state)],
        "more_sessions": sessions.before is not None,
        "images": usable[:SHOWN],
        "more_images": max(0, len(usable) - SHOWN),
        "volumes": await volume_endpoints.views(db, mine[:SHOWN], caller),
        "more_volumes": max(0, len(mine) - SHOWN),
    }


@router.post("", status_code=204)
@action(Action.PROJECT_CREATE)
async def create_project(form: Annotated[NewForm, Form()], caller: Caller, db: Transaction, response: Response) -> None:
    """Create a project, and show it."""
    body: dict[str, Any] = {"name": form.name, "domain": form.domain or None, **project_forms.settings(form)}
    body = {field: value for field, value in body.items() if value is not None}
    body |= {field: forms.names(getattr(form, field)) for field in LISTS}
    made = await projects.create_project(forms.checked(ProjectRequest, body), caller, db)
    response.headers["HX-Redirect"] = f"/projects/{made.name}"


async def _change(form: Annotated[ChangeForm, Form()], connection: HTTPConnection) -> ProjectChange:
    body = project_forms.settings(form) if form.described else {}
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
