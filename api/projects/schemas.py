"""Bodies of the project endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from api.model import Name, Request, Text, UserName, View
from api.projects.models import Project

MAX_QUOTA_MILLI = 32_000_000
"""2,000 nodes of 16 GPUs, the most that one manager looks after."""

Quota = Annotated[int, Field(ge=0, le=MAX_QUOTA_MILLI)]
Members = Annotated[list[UserName], Field(max_length=1000)]
Description = Annotated[Text, Field(max_length=2000)]


class ProjectRequest(Request):
    """A project to create; `quota_milli` is in milli-GPU."""

    name: Name
    quota_milli: Quota
    members: Members = Field(default_factory=list)
    description: Description = ""


class ProjectChange(Request):
    """What to change of a project; what is left out stays. `members` replaces the whole list."""

    quota_milli: Quota | None = None
    members: Members | None = None
    description: Description | None = None


class ProjectView(View):
    """A project; `used_milli` is what its sessions hold now."""

    id: UUID
    name: str
    description: str
    quota_milli: int
    used_milli: int
    members: list[str]
    created_at: datetime

    @classmethod
    def of(cls, project: Project, used_milli: int) -> ProjectView:
        """Return the view of a row and what the project's sessions hold."""
        return cls(
            id=project.id,
            name=project.name,
            description=project.description,
            quota_milli=project.quota_milli,
            used_milli=used_milli,
            members=[user.name for user in project.members],
            created_at=project.created_at,
        )
