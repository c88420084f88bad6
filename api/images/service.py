"""Rules of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from api.images import repository
from api.images.models import Image
from api.images.schemas import ImageRequest
from reservoir.document import dotted
from reservoir.errors import ConflictError, InputError, NotFoundError, Problem


class PublishedImage(BaseModel):
    """An entry of the reservoir's list of images; `session` says whether sessions may use it."""

    name: str
    tag: str
    session: bool = True


class PublishedImages(BaseModel):
    """The reservoir's list of images."""

    images: list[PublishedImage] = Field(default_factory=list)


async def every(db: AsyncSession) -> Sequence[Image]:
    """Return all images by name, the newest tag first."""
    return await repository.every(db)


async def resolve(db: AsyncSession, wanted: str) -> Image:
    """Return the image that a person means by `name`, `name:tag` or its reference; raises InputError.

    A name alone means the tag that was registered last.
    """
    images = await repository.every(db)
    for image in images:
        if wanted in (image.title, image.reference):
            return image
    for image in images:
        if wanted == image.name:
            return image
    known = ", ".join(image.title for image in images)
    raise InputError(
        f"there is no image {wanted}",
        where="image",
        cure=f"choose one of {known}" if known else "ask an administrator to register an image",
    )


async def create(db: AsyncSession, request: ImageRequest) -> Image:
    """Register an image; raises ConflictError where name and tag are taken."""
    if await repository.by_title(db, request.name, request.tag):
        raise ConflictError(
            f"there is an image {request.name}:{request.tag} already", where="tag", cure="delete it first"
        )
    image = Image(**request.model_dump())
    repository.add(db, image)
    await db.flush()
    return image


async def delete(db: AsyncSession, name: str, tag: str) -> None:
    """Delete an image; raises NotFoundError."""
    image = await repository.by_title(db, name, tag)
    if image is None:
        raise NotFoundError(f"there is no image {name}:{tag}", where="name", cure="list the images")
    await repository.delete(db, image)


async def register(db: AsyncSession, index: Any, registry: str, source: str) -> bool:
    """Register what a reservoir has published; returns whether anything changed. `source` names the index in errors."""
    changed = False
    for published in _parse(index, source).images:
        if not published.session:
            continue
        request = _request(published, registry, source)
        image = await repository.by_title(db, request.name, request.tag)
        if image is None:
            repository.add(db, Image(**request.model_dump()))
        elif image.reference != request.reference:
            image.reference = request.reference
        else:
            continue
        changed = True
    return changed


def _parse(index: Any, source: str) -> PublishedImages:
    try:
        return PublishedImages.model_validate(index)
    except ValidationError as error:
        raise InputError.of(_problems(error, source)) from error


def _request(published: PublishedImage, registry: str, source: str) -> ImageRequest:
    """People write the last part of the name: `penstock/python` is `python`."""
    reference = f"{registry}/{published.name}:{published.tag}"
    try:
        return ImageRequest(name=published.name.rpartition("/")[2], tag=published.tag, reference=reference)
    except ValidationError as error:
        raise InputError.of(_problems(error, f"{source}: {published.name}")) from error


def _problems(error: ValidationError, source: str) -> list[Problem]:
    return [
        Problem(f"{source}: {dotted(item['loc'])}", str(item["msg"]), "publish the bundle again")
        for item in error.errors()
    ]
