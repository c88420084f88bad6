"""Queries of images."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.images.models import Image


async def every(db: AsyncSession) -> Sequence[Image]:
    """Return all images by name, the newest tag first."""
    return (await db.scalars(select(Image).order_by(Image.name, Image.created_at.desc(), Image.tag))).all()


async def by_title(db: AsyncSession, name: str, tag: str) -> Image | None:
    """Return the image of that name and tag."""
    return (await db.scalars(select(Image).where(Image.name == name, Image.tag == tag))).one_or_none()


def add(db: AsyncSession, image: Image) -> None:
    """Add an image to the transaction."""
    db.add(image)


async def delete(db: AsyncSession, image: Image) -> None:
    """Delete an image; sessions that use it go on."""
    await db.delete(image)
