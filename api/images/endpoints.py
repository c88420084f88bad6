"""Endpoints of images. Everybody may see them; administrators register and delete them."""

from __future__ import annotations

from fastapi import APIRouter

from api.access import Admin
from api.database import Reading, Transaction
from api.images import service
from api.images.schemas import ImageName, ImageRequest, ImageTag, ImageView
from api.model import Done

router = APIRouter(prefix="/images", tags=["images"])


@router.get("")
async def list_images(db: Reading) -> list[ImageView]:
    """List the images that sessions may use."""
    return [ImageView.model_validate(image) for image in await service.every(db)]


@router.post("", status_code=201)
async def create_image(request: ImageRequest, _admin: Admin, db: Transaction) -> ImageView:
    """Register an image."""
    return ImageView.model_validate(await service.create(db, request))


@router.delete("/{name}:{tag}")
async def delete_image(name: ImageName, tag: ImageTag, _admin: Admin, db: Transaction) -> Done:
    """Delete an image; sessions that use it go on."""
    await service.delete(db, name, tag)
    return Done()
