"""Rules of projects."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Identity
from api.projects import repository
from api.projects.models import Project
from api.projects.schemas import ProjectChange, ProjectRequest
from api.users import service as users
from reservoir.errors import ConflictError, NotFoundError


async def visible(db: AsyncSession, caller: Identity) -> Sequence[Project]:
    """Return the projects that the caller may see: all for an administrator, else the caller's own."""
    return await repository.every(db, None if caller.is_admin else caller.id)


async def every(db: AsyncSession) -> Sequence[Project]:
    """Return all projects."""
    return await repository.every(db)


async def get(db: AsyncSession, name: str, caller: Identity, field: str = "project") -> Project:
    """Return one project; raises NotFoundError also where it exists but the caller is no member."""
    project = await repository.by_name(db, name)
    if project is None or not (caller.is_admin or any(user.id == caller.id for user in project.members)):
        raise NotFoundError(
            f"there is no project {name} that you may see", where=field, cure="list the projects, or ask to be a member"
        )
    return project


async def create(db: AsyncSession, request: ProjectRequest) -> Project:
    """Create a project; raises ConflictError where the name is taken."""
    if await repository.by_name(db, request.name):
        raise ConflictError(f"there is a project {request.name} already", where="name", cure="choose another name")
    project = Project(
        name=request.name,
        description=request.description,
        quota_milli=request.quota_milli,
        members=await users.members(db, request.members),
    )
    repository.add(db, project)
    await db.flush()
    return project


async def change(db: AsyncSession, name: str, request: ProjectChange, caller: Identity) -> Project:
    """Change a project."""
    project = await get(db, name, caller, "name")
    if request.quota_milli is not None:
        project.quota_milli = request.quota_milli
    if request.members is not None:
        project.members = await users.members(db, request.members)
    if request.description is not None:
        project.description = request.description
    return project


async def delete(db: AsyncSession, name: str, caller: Identity) -> None:
    """Delete a project."""
    await repository.delete(db, await get(db, name, caller, "name"))
