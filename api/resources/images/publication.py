"""The reservoir's list of images, as the images that sessions may use. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, ValidationError

from api.resources.images.schemas import ImageRequest
from common import findings
from common.errors import InputError, Problem
from common.places import dotted


class PublishedImage(BaseModel):
    """An entry of the reservoir's list of images; `session` says whether sessions may use it."""

    name: str
    tag: str
    session: bool = True


class PublishedImages(BaseModel):
    """The reservoir's list of images."""

    images: list[PublishedImage] = Field(default_factory=list)


def requests(index: Any, registry: str, source: str) -> list[ImageRequest]:
    """Return what to register of a list that was published; raises InputError, which names `source`."""
    try:
        published = PublishedImages.model_validate(index).images
    except ValidationError as error:
        raise InputError.of(_problems(error, source)) from error
    return [_request(image, registry, source) for image in published if image.session]


def _request(published: PublishedImage, registry: str, source: str) -> ImageRequest:
    """People write the last part of the name: `penstock/python` is `python`."""
    reference = f"{registry}/{published.name}:{published.tag}"
    try:
        return ImageRequest(name=published.name.rpartition("/")[2], tag=published.tag, reference=reference)
    except ValidationError as error:
        raise InputError.of(_problems(error, f"{source}: {published.name}")) from error


def _problems(error: ValidationError, source: str) -> list[Problem]:
    return [
        Problem(f"{source}: {dotted(item['loc'])}", findings.reason(item), "publish the bundle again")
        for item in error.errors()
    ]
