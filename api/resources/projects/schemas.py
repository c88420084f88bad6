"""Bodies of the project endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, field_validator, model_validator

from api.resources.list_changes import one_form
from api.resources.schemas import Moment, Name, Request, Text, UserName, View
from api.tables.projects import Access, Expiry, Project, ProjectRole
from common.sentence import Said, Sentence

MAX_QUOTA_MILLI = 32_000_000
"""2,000 nodes of 16 GPUs, the most that one manager looks after."""

MAX_SECONDS = 366 * 24 * 3600

Quota = Annotated[int, Field(ge=0, le=MAX_QUOTA_MILLI)]
Cpu = Annotated[int, Field(ge=0, le=1_000_000_000)]
"""Thousandths of a CPU: of 2,000 nodes with 500 each."""
Memory = Annotated[int, Field(ge=0, le=16 * 1024**3)]
"""MiB: of 2,000 nodes with 8 TiB each."""
Weight = Annotated[int, Field(ge=0, le=1_000_000)]
Users = Annotated[list[UserName], Field(max_length=1000)]
Description = Annotated[Text, Field(max_length=2000)]
Seconds = Annotated[int, Field(ge=0, le=MAX_SECONDS)]


class Period(Request):
    """When a project may be used: from `starts_at` (left out: now) up to `ends_at`; null there is an open end."""

    starts_at: Moment | None = None
    ends_at: Moment | None

    @model_validator(mode="after")
    def _in_order(self) -> Period:
        if self.starts_at and self.ends_at and self.ends_at <= self.starts_at:
            raise ValueError(Sentence("a period ends after it starts"))
        return self


class ProjectRequest(Request):
    """A project to create; `quota_milli` is in milli-GPU, and a hard cap unless `over_quota`.

    `over_quota_weight` is its part of what is spare (null: its quota; 0: what nobody with a part of it wants).
    `training_group` and `interactive_group` are resource groups that its sessions keep to. `interactive_limit_s`
    ends interactive sessions after so many seconds (0: never), `interactive_extension_s` is how much an owner may add
    in total. No session is reclaimed before it ran
    `min_runtime_s` (null: as the site says). With `over_quota` they hold no more than `limit_milli` together (null: no
    limit). Of CPU and memory the same holds where there is a quota of these (null: none, and no limit), guaranteed to
    sessions without GPUs. Sessions that are submitted without an access of their own have its `session_access`.
    """

    name: Name
    quota_milli: Quota
    period: Period
    description: Description = ""
    managers: Users = Field(default_factory=list)
    members: Users = Field(default_factory=list)
    over_quota: bool = True
    over_quota_weight: Weight | None = None
    limit_milli: Quota | None = None
    cpu_quota_milli: Cpu | None = None
    cpu_limit_milli: Cpu | None = None
    memory_quota_mib: Memory | None = None
    memory_limit_mib: Memory | None = None
    on_expiry: Expiry = Expiry.STOP
    training_group: Name | None = None
    interactive_group: Name | None = None
    interactive_limit_s: Seconds = 0
    interactive_extension_s: Seconds = 0
    min_runtime_s: Seconds | None = None
    session_access: Access = Access.PROJECT
    domain: Name | None = None


class ProjectChange(Request):
    """What to change of a project; what is left out stays. `managers` and `members` replace their lists.

    `add_members` and the like change one list by those names, whatever else is in it. null takes a resource group, a
    limit, a weight, or a quota of CPU or memory away, and lets `min_runtime_s` be what the site says. `session_access`
    is for sessions that are submitted from then on.
    """

    quota_milli: Quota | None = None
    period: Period | None = None
    description: Description | None = None
    managers: Users | None = None
    members: Users | None = None
    add_managers: Users = Field(default_factory=list)
    remove_managers: Users = Field(default_factory=list)
    add_members: Users = Field(default_factory=list)
    remove_members: Users = Field(default_factory=list)
    over_quota: bool | None = None
    over_quota_weight: Weight | None = None
    limit_milli: Quota | None = None
    cpu_quota_milli: Cpu | None = None
    cpu_limit_milli: Cpu | None = None
    memory_quota_mib: Memory | None = None
    memory_limit_mib: Memory | None = None
    on_expiry: Expiry | None = None
    training_group: Name | None = None
    interactive_group: Name | None = None
    interactive_limit_s: Seconds | None = None
    interactive_extension_s: Seconds | None = None
    min_runtime_s: Seconds | None = None
    session_access: Access | None = None

    @field_validator(
        "quota_milli",
        "period",
        "description",
        "managers",
        "members",
        "over_quota",
        "on_expiry",
        "interactive_limit_s",
        "interactive_extension_s",
        "session_access",
    )
    @classmethod
    def _not_null(cls, value: Any) -> Any:
        if value is None:
            raise ValueError(Sentence("null is no value here; leave the key out to keep what is"))
        return value

    @model_validator(mode="after")
    def _one_form(self) -> ProjectChange:
        return one_form(self, "managers", "members")


class PeriodView(View):
    """From when to when a project may be used; an end of null is open."""

    starts_at: datetime
    ends_at: datetime | None


class ProjectView(View):
    """A project; `used_milli` is what its sessions hold now, `had_milli` what they had lately beyond its quota.

    That is an average, as far as the site has counted it (`spare_half_life_s`).

    `active` says whether it is in its period: outside it nothing can be submitted and its quota counts as 0.
    `warnings` says where the quotas of the site's projects come to more than its GPUs.
    """

    id: UUID
    name: str
    description: str
    domain: str | None
    quota_milli: int
    used_milli: int
    over_quota: bool
    over_quota_weight: int | None
    limit_milli: int | None
    cpu_quota_milli: int | None
    cpu_limit_milli: int | None
    memory_quota_mib: int | None
    memory_limit_mib: int | None
    period: PeriodView
    active: bool
    on_expiry: Expiry
    managers: list[str]
    members: list[str]
    training_group: str | None
    interactive_group: str | None
    interactive_limit_s: int
    interactive_extension_s: int
    min_runtime_s: int | None
    session_access: Access
    had_milli: int
    warnings: list[Said]
    created_at: datetime

    @classmethod
    def of(cls, project: Project, *, used_milli: int, active: bool, warnings: Iterable[str]) -> ProjectView:
        """Return the view of a row, what the project's sessions hold, and what is to be said of it."""
        made = {"used_milli", "had_milli", "period", "active", "managers", "members", "warnings"}
        fields = {name: getattr(project, name) for name in cls.model_fields.keys() - made}
        return cls(
            **fields,
            used_milli=used_milli,
            had_milli=round(project.had_milli),
            period=PeriodView.model_validate(project),
            active=active,
            managers=project.names(ProjectRole.MANAGER),
            members=project.names(ProjectRole.MEMBER),
            warnings=list(warnings),
        )
