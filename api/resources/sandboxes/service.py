"""Rules of sandboxes: what they may deny, and which one a session gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.resources.images import service as images
from api.resources.projects import service as projects
from api.resources.sandboxes import repository
from api.resources.sandboxes.schemas import SandboxChange, SandboxRequest
from api.tables.sandboxes import Sandbox
from common.errors import ConflictError, InputError, NotFoundError, Problem
from common.sandbox import SandboxRule
from common.sentence import Sentence
from common.syscalls import is_known

every = repository.every


async def get(db: AsyncSession, name: str) -> Sandbox:
    """Return one sandbox; raises NotFoundError."""
    sandbox = await repository.by_name(db, name)
    if sandbox is None:
        raise NotFoundError(
            Sentence("there is no sandbox {name}", name=name), where="name", hint=Sentence("list the sandboxes")
        )
    return sandbox


def shown_projects(sandbox: Sandbox, caller: Identity) -> list[str]:
    """Return those of a sandbox's projects that the caller may see, by name."""
    seen = (item for item in sandbox.projects if caller.may(Action.PROJECT_READ, project=item))
    return sorted(item.name for item in seen)


async def create(db: AsyncSession, request: SandboxRequest) -> Sandbox:
    """Create a sandbox.

    Raises ConflictError where the name is taken or another sandbox is there for the same sessions, InputError for a
    rule that names a call which there is not.
    """
    if await repository.by_name(db, request.name):
        raise ConflictError(
            Sentence("there is a sandbox {name} already", name=request.name),
            where="name",
            hint=Sentence("choose another name"),
        )
    _check(request.rules)
    sandbox = Sandbox(
        name=request.name,
        description=request.description,
        rules=_written(request.rules),
        projects=[],
        images=[],
    )
    await _give(db, sandbox, request)
    repository.add(db, sandbox)
    await db.flush()
    return sandbox


async def change(db: AsyncSession, name: str, request: SandboxChange) -> Sandbox:
    """Change a sandbox; raises as `create` does."""
    sandbox = await get(db, name)
    if request.description is not None:
        sandbox.description = request.description
    if request.rules is not None:
        _check(request.rules)
        sandbox.rules = _written(request.rules)
    await _give(db, sandbox, request)
    await db.flush()
    return sandbox


async def delete(db: AsyncSession, name: str) -> None:
    """Delete a sandbox; sessions that were submitted with it keep its rules."""
    await repository.delete(db, await get(db, name))


async def for_session(db: AsyncSession, project_id: UUID, reference: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the name and the rules of the sandbox of a session of a project and an image; empty where it has none.

    Whoever names an image in another way, or registers it once more, gets the sandbox of that image all the same.
    """
    any_for_images, sandbox = await repository.for_project(db, project_id)
    if any_for_images:
        meant = await images.meant_by(db, reference)
        sandbox = await repository.for_session(db, project_id, [image.id for image in meant])
    return (sandbox.name, sandbox.rules) if sandbox else ("", [])


def _check(rules: Sequence[SandboxRule]) -> None:
    """Refuse names of calls that there are not: a filter would pass over them in silence."""
    unknown = [
        Problem(
            f"rules[{number}].calls",
            Sentence("there is no system call {name}", name=call),
            Sentence("correct its name"),
        )
        for number, rule in enumerate(rules)
        for call in rule.calls
        if not is_known(call)
    ]
    if unknown:
        raise InputError.of(unknown)


def _written(rules: Iterable[SandboxRule]) -> list[dict[str, Any]]:
    return [rule.model_dump(mode="json") for rule in rules]


async def _give(db: AsyncSession, sandbox: Sandbox, request: SandboxRequest | SandboxChange) -> None:
    """Give a sandbox to projects, to images and to the site; raises ConflictError where these have another one."""
    # what is set must not go to the database before it is compared: there it would be a conflict without a name
    with db.no_autoflush:
        if request.projects is not None:
            sandbox.projects = await projects.named(db, request.projects, "projects")
        if request.images is not None:
            found = [await images.resolve(db, wanted) for wanted in request.images]
            sandbox.images = list({image.id: image for image in found}.values())
        if request.site_wide is not None:
            sandbox.site_wide = request.site_wide
        others = await repository.every(db)
    for other in others:
        if other is sandbox:
            continue
        taken = [
            *(("projects", item.name) for item in sandbox.projects if item in other.projects),
            *(("images", item.title) for item in sandbox.images if item in other.images),
            *([("site_wide", "the site")] if sandbox.site_wide and other.site_wide else []),
        ]
        if taken:
            where, what = taken[0]
            raise ConflictError(
                Sentence("{what} has the sandbox {name} already", what=what, name=other.name),
                where=where,
                hint=Sentence("take it from {name} first", name=other.name),
            )
