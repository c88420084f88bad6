"""Rules of images."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.database import IMAGES_LOCK, exclusively
from api.resources.images import publication, repository
from api.resources.images.schemas import ImageRequest
from api.resources.images.versions import newest
from api.resources.projects import service as projects
from api.tables.images import Image, Status, Visibility
from api.tables.projects import Project
from common import image_references
from common.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from common.image_references import means
from common.sentence import Sentence, Several

SHOWN = 20
"""How many images an error names at most."""

AGAIN: dict[str, Any] = {"status": Status.UNCHECKED, "error": "", "digest": "", "size": 0}
"""What is known of an image that has to be looked for again."""

forget_project = repository.delete_of_project
replace_in_errors = repository.replace_in_errors


async def visible(db: AsyncSession, caller: Identity, project: str | None = None) -> Sequence[Image]:
    """Return the images that sessions of one project, or of all that the caller sees, may use."""
    if project is not None:
        return await repository.usable(db, [(await projects.get(db, project, caller)).id])
    reach = caller.reach(Action.PROJECT_READ)
    seen = None if reach.everything else [item.id for item in await projects.visible(db, caller)]
    return await repository.usable(db, seen)


async def resolve(db: AsyncSession, wanted: str, project_id: UUID | None = None) -> Image:
    """Return the image that a person means by `name`, `name:tag` or its reference; raises InputError.

    What a project has of its own comes before what is global. A name alone means the tag `latest`, or else the highest
    version; only the project's own images count where it has any of that name.
    """
    usable = await repository.usable(db, [project_id] if project_id else [], whose=False)
    for visibility in (Visibility.PROJECTS, Visibility.GLOBAL):
        images = [image for image in usable if image.visibility is visibility]
        exact = next((image for image in images if wanted in (image.title, image.reference)), None)
        tags = {image.tag: image for image in images if image.name == wanted}
        if exact or tags:
            return exact or tags[newest(tags)]
    raise unknown(wanted, usable)


async def meant_by(db: AsyncSession, reference: str) -> list[Image]:
    """Return all images, of whichever project, that a reference stands for."""
    return [image for image in await repository.usable(db, None) if means(reference, image.reference, image.digest)]


async def is_of_others(db: AsyncSession, reference: str, projects: Collection[UUID]) -> bool:
    """Return whether only other projects than these have the image of a reference."""
    found = await meant_by(db, reference)
    own = any(not image.projects or any(owner.id in projects for owner in image.projects) for image in found)
    return bool(found) and not own


def unknown(wanted: str, usable: Sequence[Image] = ()) -> InputError:
    """Return the error of an image that there is not, or not for who asks."""
    return InputError(Sentence("there is no image {wanted}", wanted=wanted), where="image", hint=_choices(usable))


async def get(db: AsyncSession, name: str, tag: str, project: str | None, caller: Identity) -> Image:
    """Return the global image of a name and tag, or a project's own; raises NotFoundError."""
    if project is None:
        image = await repository.global_one(db, name, tag)
    else:
        owner = await projects.get(db, project, caller)
        image = next(iter(await repository.of_projects(db, [owner.id], name, tag)), None)
    if image is None:
        raise NotFoundError(
            Sentence("there is no image {wanted} of {project}", wanted=f"{name}:{tag}", project=project)
            if project
            else Sentence("there is no image {wanted}", wanted=f"{name}:{tag}"),
            where="name",
            hint=Sentence("list the images; for one that is not global name its project"),
        )
    return image


async def create(db: AsyncSession, request: ImageRequest, caller: Identity, registries: Collection[str]) -> Image:
    """Register an image; raises ConflictError where name and tag are taken among those of its visibility.

    Raises InputError for a reference that names none of the site's `registries`. One that names no registry may be on
    the nodes already.
    Raises ForbiddenError for the image of a project that the caller does not see: who knows its reference has no right
    to it, and nothing else keeps what was made inside the site.
    """
    image_references.check(request.reference, "reference")
    if image_references.registry_of(request.reference):
        image_references.check_registry(request.reference, registries, "reference")
    await exclusively(db, IMAGES_LOCK)
    owners = [await projects.get(db, name, caller, "projects") for name in sorted(set(request.projects))]
    _check_register(caller, owners)
    await _check_reference(db, request.reference, caller)
    title = f"{request.name}:{request.tag}"
    if owners:
        taken: Image | None = next(
            iter(await repository.of_projects(db, [owner.id for owner in owners], request.name, request.tag)), None
        )
    else:
        taken = await repository.global_one(db, request.name, request.tag)
    if taken:
        raise ConflictError(
            Sentence("there is an image {title} already", title=title), where="tag", hint=Sentence("delete it first")
        )
    image = Image(
        **request.model_dump(exclude={"projects"}),
        visibility=Visibility.PROJECTS if owners else Visibility.GLOBAL,
        projects=owners,
        user_id=caller.id,
        user_name=caller.name,
    )
    repository.add(db, image)
    await db.flush()
    return image


async def check_again(db: AsyncSession, name: str, tag: str, project: str | None, caller: Identity) -> Image:
    """Let a node look for an image once more."""
    image = await get(db, name, tag, project, caller)
    _check_manage(caller, image)
    _renew(image)
    await db.flush()
    return image


async def delete(db: AsyncSession, name: str, tag: str, project: str | None, caller: Identity) -> None:
    """Delete an image; raises NotFoundError."""
    image = await get(db, name, tag, project, caller)
    _check_manage(caller, image)
    await repository.delete(db, image)


async def register(db: AsyncSession, index: Any, registry: str, source: str) -> bool:
    """Register what a reservoir has published; returns whether anything changed. `source` names the index in errors."""
    changed = False
    await exclusively(db, IMAGES_LOCK)
    for request in publication.requests(index, registry, source):
        image = await repository.global_one(db, request.name, request.tag)
        if image is None:
            repository.add(db, Image(**request.model_dump(exclude={"projects"}), visibility=Visibility.GLOBAL))
        elif image.reference != request.reference:
            image.reference = request.reference
            _renew(image)
        else:
            continue
        changed = True
    return changed


def _renew(image: Image) -> None:
    for field, value in AGAIN.items():
        setattr(image, field, value)
    image.since = now()


def _check_register(caller: Identity, owners: Sequence[Project]) -> None:
    if not owners and not caller.may(Action.IMAGE_REGISTER):
        raise ForbiddenError(
            Sentence("only an administrator of the site offers an image to every project"),
            where="projects",
            hint=Sentence("name projects of yours"),
        )
    for owner in owners:
        caller.check(Action.IMAGE_REGISTER, project=owner)


async def _check_reference(db: AsyncSession, reference: str, caller: Identity) -> None:
    """Refuse an image that only projects have which the caller does not see, without telling which they are."""
    if caller.reach(Action.PROJECT_READ).everything:
        return
    seen = [project.id for project in await projects.visible(db, caller)]
    if await is_of_others(db, reference, seen):
        raise ForbiddenError(
            Sentence("the image {reference} is not for your projects", reference=reference),
            where="reference",
            hint=Sentence("ask an administrator of the site to offer it to them"),
        )


def _check_manage(caller: Identity, image: Image) -> None:
    for owner in _owners(image):
        caller.check(Action.IMAGE_MANAGE, project=owner, owner_id=image.user_id)


def may_manage(caller: Identity, image: Image) -> bool:
    """Whoever registered an image looks after it, and so does who manages every project that may use it."""
    return all(caller.may(Action.IMAGE_MANAGE, project=owner, owner_id=image.user_id) for owner in _owners(image))


def _owners(image: Image) -> Sequence[Project | None]:
    return image.projects or [None]


def _choices(images: Sequence[Image]) -> str:
    titles = list(dict.fromkeys(image.title for image in images))
    if not titles:
        return Sentence("ask an administrator to register an image, or register one for your project")
    names = Several(titles[:SHOWN])
    if len(titles) > SHOWN:
        return Sentence(
            "choose one of {names} and {count} more; a name alone means `latest` or its highest version",
            names=names,
            count=len(titles) - SHOWN,
        )
    return Sentence("choose one of {names}; a name alone means `latest` or its highest version", names=names)
