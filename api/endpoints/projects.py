"""Endpoints of projects. Members see their own; managers change who is in and who sees sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, Query
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.clock import now
from api.control.manager import WakeAfterwards
from api.endpoints import auditing
from api.endpoints.access import Caller, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.images import service as images
from api.resources.projects import quotas, service
from api.resources.projects.schemas import ProjectChange, ProjectRequest, ProjectView
from api.resources.schemas import Done, NamePath, NameQuery
from api.resources.sessions import service as sessions
from api.resources.volumes import service as volumes
from api.resources.volumes.schemas import AfterProject
from api.tables.projects import Project

router = Router(prefix="/projects", tags=["projects"])


@router.get("")
@action(Action.PROJECT_READ)
async def list_projects(caller: Caller, db: Reading) -> list[ProjectView]:
    """List the projects that the caller may see."""
    return await _views(db, await service.visible(db, caller, people=True))


@router.get("/{name}")
@action(Action.PROJECT_READ)
async def get_project(name: NamePath, caller: Caller, db: Reading) -> ProjectView:
    """Show one project, also when its period is over."""
    return await _view(db, await service.get(db, name, caller, "name", people=True))


@router.post("", status_code=201)
@action(Action.PROJECT_CREATE)
async def create_project(request: ProjectRequest, caller: Caller, db: Transaction) -> ProjectView:
    """Create a project for a period."""
    return await _view(db, await service.create(db, request, caller))


async def _change(request: ProjectChange, connection: HTTPConnection) -> ProjectChange:
    auditing.needs(connection, service.needed(request))
    return request


@router.patch("/{name}")
@action(Action.PROJECT_MEMBERS)
async def change_project(
    *,
    name: NamePath,
    request: Annotated[ProjectChange, Depends(_change)],
    caller: Caller,
    db: Transaction,
    _wake: WakeAfterwards,
) -> ProjectView:
    """Change a project; managers may change members and `session_access` only. A higher quota lets sessions run."""
    return await _view(db, await service.change(db, name, request, caller))


@router.delete("/{name}")
@action(Action.PROJECT_DELETE)
async def delete_project(
    *,
    name: NamePath,
    caller: Caller,
    db: Transaction,
    _wake: WakeAfterwards,
    volumes_: Annotated[AfterProject | None, Query(alias="volumes")] = None,
    to: NameQuery | None = None,
) -> Done:
    """Delete a project that has no live session, with the images that only it may use.

    One that has volumes is deleted only where `volumes` says what becomes of these: `keep` leaves them without a
    project, to be handed over later, `delete` removes them with their files, `hand-over` gives them to another project,
    `to`.
    """
    if volumes_ is AfterProject.HAND_OVER:
        await volumes.hold(db)
    project = await service.get(db, name, caller, "name", lock=True)
    caller.check(Action.PROJECT_DELETE, project=project)
    await sessions.refuse_while_live(db, project=name)
    await volumes.settle(db, project, volumes_, to, caller)
    await images.forget_project(db, project.id)
    await service.delete(db, project)
    return Done()


async def _view(db: AsyncSession, project: Project) -> ProjectView:
    return (await _views(db, [project]))[0]


async def _views(db: AsyncSession, projects: Sequence[Project]) -> list[ProjectView]:
    moment = now()
    used = await sessions.used_by_project(db)
    warnings = await quotas.warnings(db, projects, moment)
    return [
        ProjectView.of(
            project, used_milli=used.get(project.id, 0), active=service.is_active(project, moment), warnings=said
        )
        for project, said in zip(projects, warnings, strict=True)
    ]
