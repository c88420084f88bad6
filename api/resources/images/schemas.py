"""Bodies of the image endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Path
from pydantic import Field

from api.resources.schemas import Name, Request, Text, View
from api.tables.images import Image, Status, Visibility
from common.hints import hinted
from common.sentence import Sentence

NAME = r"^[a-z0-9]+([._-][a-z0-9]+)*$"
TAG = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
_PART = r"[a-z0-9]+(([.]|_{1,2}|-+)[a-z0-9]+)*"
REFERENCE = (
    r"^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?/)?"
    rf"{_PART}(/{_PART})*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@[a-z0-9]+:[0-9a-f]{1,128})?$"
)
"""The grammar of references: a registry, the parts of a repository, a tag, a digest."""

Reference = Annotated[
    str,
    Field(max_length=512, pattern=REFERENCE),
    hinted(
        Sentence("write it like {example}", example="reservoir:5000/team/python:3.11"),
        Sentence("is no reference of an image"),
    ),
]
_NAME = hinted(
    Sentence("write lower-case letters and digits, and between them single dots, hyphens or underscores"),
    Sentence("is no name of an image"),
)
_TAG = hinted(
    Sentence("write letters, digits, dots, hyphens and underscores, 128 at most"), Sentence("is no tag of an image")
)
NewName = Annotated[str, Field(max_length=128, pattern=NAME), _NAME]
NewTag = Annotated[str, Field(pattern=TAG), _TAG]
ImageName = Annotated[str, Path(max_length=128, pattern=NAME), _NAME]
ImageTag = Annotated[str, Path(max_length=128, pattern=TAG), _TAG]


class ImageRequest(Request):
    """An image to offer: `name` and `tag` are what people write, `reference` is what the container engine pulls.

    It is for `projects` only, or global where there are none, which takes an administrator.
    """

    name: NewName
    tag: NewTag
    reference: Reference
    description: Annotated[Text, Field(max_length=2000)] = ""
    projects: list[Name] = Field(default_factory=list, max_length=1000)


class ImageView(View):
    """An image that sessions may use; `projects` are those of its projects that the caller sees.

    `status` says whether a node could pull it, since when, and `error` why not; `digest` is that of its registry, or
    its id at the container engine where it comes from none, `size` in bytes.
    """

    id: UUID
    name: str
    tag: str
    reference: str
    description: str
    visibility: Visibility
    projects: list[str]
    status: Status
    since: datetime
    error: str
    digest: str
    size: int
    created_by: str
    created_at: datetime

    @classmethod
    def of(cls, image: Image, projects: Iterable[str], error: str) -> ImageView:
        """Return the view of a row, with those of its projects that may be shown, and what may be said of its error."""
        made = {"projects", "created_by", "error"}
        fields = {name: getattr(image, name) for name in cls.model_fields.keys() - made}
        return cls(**fields, projects=list(projects), created_by=image.user_name, error=error)
