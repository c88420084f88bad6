"""Bodies of the resource group endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, model_validator

from api.resources.list_changes import one_form
from api.resources.schemas import NODE_NAME, Change, Name, Request, Text, UserName, View
from api.tables.groups import ResourceGroup
from common.hints import hinted
from common.natural_order import natural
from common.sentence import Sentence

Words = Annotated[Text, Field(max_length=200)]
GpuModel = Annotated[
    Text,
    Field(max_length=200, pattern=r"^$|[A-Za-z0-9]"),
    hinted(
        Sentence("write words of the model's name, such as {example}", example="v100"),
        Sentence("has neither a letter nor a digit"),
    ),
]
Description = Annotated[Text, Field(max_length=2000)]
NodeName = Annotated[
    str,
    Field(max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"),
    NODE_NAME,
]
Nodes = Annotated[list[NodeName], Field(max_length=2000)]
Users = Annotated[list[UserName], Field(max_length=10_000)]
Projects = Annotated[list[Name], Field(max_length=10_000)]


class GroupRequest(Request):
    """A resource group to create.

    Its nodes are `nodes`, and every one that is all of what is given of `gpu_model` (words of the model's name, such
    as `v100`), `switch` and `region`; new nodes join by themselves. An `open` group is for everybody, another one for
    `users` and the members of `projects`; one of a `domain` is for its users only.
    """

    name: Name
    description: Description = ""
    purpose: Words = ""
    nodes: Nodes = Field(default_factory=list)
    gpu_model: GpuModel = ""
    switch: Words = ""
    region: Words = ""
    open: bool = False
    users: Users = Field(default_factory=list)
    projects: Projects = Field(default_factory=list)
    domain: Name | None = None


class GroupChange(Change):
    """What to change of a resource group; what is left out stays. Lists replace those that are.

    `add_users` and the like change one list by those names, whatever else is in it. A domain of null makes it the
    site's.
    """

    NULLABLE = frozenset({"domain"})

    description: Description | None = None
    purpose: Words | None = None
    nodes: Nodes | None = None
    gpu_model: GpuModel | None = None
    switch: Words | None = None
    region: Words | None = None
    open: bool | None = None
    users: Users | None = None
    projects: Projects | None = None
    add_nodes: Nodes = Field(default_factory=list)
    remove_nodes: Nodes = Field(default_factory=list)
    add_users: Users = Field(default_factory=list)
    remove_users: Users = Field(default_factory=list)
    add_projects: Projects = Field(default_factory=list)
    remove_projects: Projects = Field(default_factory=list)
    domain: Name | None = None

    @model_validator(mode="after")
    def _one_form(self) -> GroupChange:
        return one_form(self, "nodes", "users", "projects")


class GroupView(View):
    """A resource group; `nodes` are named for it, `present` are all that belong to it now.

    Who may not see other people finds only their own name and projects in it.
    """

    id: UUID
    name: str
    description: str
    purpose: str
    domain: str | None
    nodes: list[str]
    present: list[str]
    gpu_model: str
    switch: str
    region: str
    open: bool
    users: list[str]
    projects: list[str]
    created_at: datetime

    @classmethod
    def of(
        cls, group: ResourceGroup, *, present: Iterable[str], users: Iterable[str], projects: Iterable[str]
    ) -> GroupView:
        """Return the view of a row, the nodes that are in it now, and those of its people that may be shown."""
        made = {"nodes", "present", "users", "projects"}
        fields = {name: getattr(group, name) for name in cls.model_fields.keys() - made}
        return cls(
            **fields,
            nodes=sorted((node.name for node in group.nodes), key=natural),
            present=sorted(present, key=natural),
            users=sorted(users, key=natural),
            projects=sorted(projects, key=natural),
        )
