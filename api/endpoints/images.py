"""Endpoints of images. Members see the global ones and those of their projects, and register more for these."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.control.manager import WakeAfterwards
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.images import service
from api.resources.images.schemas import ImageName, ImageRequest, ImageTag, ImageView
from api.resources.nodes import rights as nodes
from api.resources.projects import service as projects
from api.resources.schemas import Done, NameQuery
from api.tables.images import Image

router = Router(prefix="/images", tags=["images"])


@router.get("")
@action(Action.IMAGE_READ)
async def list_images(caller: Caller, db: Reading, project: NameQuery | None = None) -> list[ImageView]:
    """List the images that sessions of a project may use, or those of any project that the caller sees."""
    return await views(db, await service.visible(db, caller, project), caller)


@router.post("", status_code=201)
@action(Action.IMAGE_REGISTER)
async def create_image(
    request: ImageRequest, caller: Caller, db: Transaction, settings: SettingsOf, _wake: WakeAfterwards
) -> ImageView:
    """Register an image for projects, or for all; a node then tries to pull it from its registry, one of the site's."""
    return await _view(db, await service.create(db, request, caller, settings.registries), caller)


@router.post("/{name}:{tag}/check", status_code=202)
@action(Action.IMAGE_MANAGE)
async def check_image(
    name: ImageName,
    tag: ImageTag,
    caller: Caller,
    db: Transaction,
    _wake: WakeAfterwards,
    project: NameQuery | None = None,
) -> ImageView:
    """Let a node try to pull an image once more; of a `project` where it is not global."""
    return await _view(db, await service.check_again(db, name, tag, project, caller), caller)


@router.delete("/{name}:{tag}")
@action(Action.IMAGE_MANAGE)
async def delete_image(
    name: ImageName, tag: ImageTag, caller: Caller, db: Transaction, project: NameQuery | None = None
) -> Done:
    """Delete an image, of a `project` where it is not global; sessions that use it go on."""
    await service.delete(db, name, tag, project, caller)
    return Done()


async def _view(db: AsyncSession, image: Image, caller: Identity) -> ImageView:
    return (await views(db, [image], caller))[0]


async def views(db: AsyncSession, images: Sequence[Image], caller: Identity) -> list[ImageView]:
    """Return the views of images for a caller; what went wrong names no node that the caller may not see."""
    seen = {project.id for project in await projects.visible(db, caller)}
    hidden = await nodes.hidden(db, caller) if any(image.error for image in images) else ()
    return [
        ImageView.of(
            image,
            [project.name for project in image.projects if project.id in seen],
            nodes.without_names(image.error, hidden),
        )
        for image in images
    ]
