"""Bodies of the image endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Path
from pydantic import Field

from api.model import Request, View

NAME = r"^[a-z0-9]+([._-][a-z0-9]+)*$"
TAG = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
REFERENCE = r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$"

ImageName = Annotated[str, Path(max_length=128, pattern=NAME)]
ImageTag = Annotated[str, Path(max_length=128, pattern=TAG)]


class ImageRequest(Request):
    """An image to offer: `name` and `tag` are what people write, `reference` is what the container engine pulls."""

    name: str = Field(max_length=128, pattern=NAME)
    tag: str = Field(pattern=TAG)
    reference: str = Field(pattern=REFERENCE)


class ImageView(View):
    """An image that sessions may use."""

    id: UUID
    name: str
    tag: str
    reference: str
    created_at: datetime
