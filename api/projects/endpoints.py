"""Endpoints of projects. Members see their own; administrators see and change all."""

from __future__ import annotations

from fastapi import APIRouter

from api.access import Admin, Caller
from api.database import Reading, Transaction
from api.model import Done, NamePath
from api.projects import service
from api.projects.schemas import ProjectChange, ProjectRequest, ProjectView
from api.reconcilers.manager import WakeAfterwards
from api.sessions import service as sessions

router = APIRouter(prefix="/projects", tags=["projects"])


@router.get("")
async def list_projects(caller: Caller, db: Reading) -> list[ProjectView]:
    """List the projects that the caller may see."""
    used = await sessions.used_by_project(db)
    return [ProjectView.of(project, used.get(project.id, 0)) for project in await service.visible(db, caller)]


@router.get("/{name}")
async def get_project(name: NamePath, caller: Caller, db: Reading) -> ProjectView:
    """Show one project."""
    project = await service.get(db, name, caller, "name")
    return ProjectView.of(project, (await sessions.used_by_project(db)).get(project.id, 0))


@router.post("", status_code=201)
async def create_project(request: ProjectRequest, _admin: Admin, db: Transaction) -> ProjectView:
    """Create a project."""
    return ProjectView.of(await service.create(db, request), 0)


@router.patch("/{name}")
async def change_project(
    name: NamePath, request: ProjectChange, admin: Admin, db: Transaction, _wake: WakeAfterwards
) -> ProjectView:
    """Change quota, members or description; a higher quota lets waiting sessions run."""
    project = await service.change(db, name, request, admin)
    await db.flush()
    return ProjectView.of(project, (await sessions.used_by_project(db)).get(project.id, 0))


@router.delete("/{name}")
async def delete_project(name: NamePath, admin: Admin, db: Transaction) -> Done:
    """Delete a project that has no live session."""
    await sessions.refuse_while_live(db, project=name)
    await service.delete(db, name, admin)
    return Done()
