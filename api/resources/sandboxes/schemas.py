"""Bodies of the sandbox endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from api.resources.schemas import Change, Name, Request, Text, View
from api.tables.sandboxes import Sandbox
from common.sandbox import MAX_RULES, SandboxRule

Description = Annotated[Text, Field(max_length=2000)]
Rules = Annotated[list[SandboxRule], Field(max_length=MAX_RULES)]
Projects = Annotated[list[Name], Field(max_length=10_000)]
Images = Annotated[list[Annotated[Text, Field(min_length=1, max_length=512)]], Field(max_length=1000)]


class SandboxRequest(Request):
    """A sandbox to create: what its `rules` deny, and whose sessions it is for.

    A session has the sandbox of its image, else that of its project, else the one that is `site_wide`. `images` are
    global ones, by name and tag. Without rules a sandbox denies nothing, and spares its sessions a wider one.
    """

    name: Name
    description: Description = ""
    rules: Rules = Field(default_factory=list)
    site_wide: bool = False
    projects: Projects = Field(default_factory=list)
    images: Images = Field(default_factory=list)


class SandboxChange(Change):
    """What to change of a sandbox; what is left out stays, and lists replace those that are.

    It holds for sessions that are submitted from now on.
    """

    description: Description | None = None
    rules: Rules | None = None
    site_wide: bool | None = None
    projects: Projects | None = None
    images: Images | None = None


class SandboxView(View):
    """A sandbox; who may not see all projects finds only those of their own."""

    id: UUID
    name: str
    description: str
    rules: list[SandboxRule]
    site_wide: bool
    projects: list[str]
    images: list[str]
    created_at: datetime

    @classmethod
    def of(cls, sandbox: Sandbox, projects: list[str]) -> SandboxView:
        """Return the view of a row with those of its projects that may be shown."""
        fields = {name: getattr(sandbox, name) for name in cls.model_fields.keys() - {"projects", "images"}}
        return cls(**fields, projects=projects, images=sorted({image.title for image in sandbox.images}))
