"""Images that sessions may use: whether a node could pull them, new ones, and those that go."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Query, Request, Response
from pydantic import BaseModel

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router
from api.control.manager import WakeAfterwards
from api.endpoints import images
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.images import service
from api.resources.images.schemas import ImageName, ImageRequest, ImageTag
from api.resources.schemas import NameQuery
from api.tables.images import Image, image_projects

SHOWN = 200

router = Router(prefix="/images")


class ImageForm(BaseModel):
    """An image to register; without projects it is for all. Names are parted by spaces or commas."""

    name: forms.Line = ""
    tag: forms.Line = ""
    reference: forms.Line = ""
    projects: forms.Line = ""
    description: forms.Line = ""


@router.get("")
@action(Action.IMAGE_READ)
async def list_images(
    *, request: Request, caller: Caller, db: Reading, q: Annotated[str, Query(max_length=128)] = ""
) -> Response:
    """Show the images that the caller may use, by name: those with some letters in name, tag or description."""
    stamp = await pages.stamp(request, db, (*stamps.PEOPLE, Image, image_projects), caller.id, request.url)
    if answer := pages.unchanged(request, stamp):
        return answer
    word = q.strip().lower()
    every = await service.visible(db, caller, None)
    found = [image for image in every if word in f"{image.title} {image.description}".lower()]
    values = {
        "q": q,
        "images": await images.views(db, found[:SHOWN], caller),
        "managed": {image.id for image in found[:SHOWN] if service.may_manage(caller, image)},
        "more": max(0, len(found) - SHOWN),
    }
    return await pages.live(request, "images.html", "images_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.IMAGE_REGISTER)
async def create_image(
    *,
    form: Annotated[ImageForm, Form()],
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    wake: WakeAfterwards,
) -> None:
    """Register an image, which a node then tries to pull."""
    body = form.model_dump() | {"projects": forms.names(form.projects)}
    await images.create_image(forms.checked(ImageRequest, body), caller, db, settings, wake)


@router.post("/{name}:{tag}/check", status_code=204, dependencies=[REFRESH])
@action(Action.IMAGE_MANAGE)
async def check_image(
    *,
    name: ImageName,
    tag: ImageTag,
    caller: Caller,
    db: Transaction,
    wake: WakeAfterwards,
    project: NameQuery | None = None,
) -> None:
    """Let a node try to pull an image once more."""
    await images.check_image(name, tag, caller, db, wake, project)


@router.post("/{name}:{tag}/delete", status_code=204, dependencies=[REFRESH])
@action(Action.IMAGE_MANAGE)
async def delete_image(
    *,
    name: ImageName,
    tag: ImageTag,
    caller: Caller,
    db: Transaction,
    project: NameQuery | None = None,
) -> None:
    """Delete an image; sessions that use it go on."""
    await images.delete_image(name, tag, caller, db, project)
