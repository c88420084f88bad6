"""Forms of projects: what a browser sends of their settings, as the API takes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.console import forms
from api.endpoints import groups
from api.resources.projects import service
from api.resources.projects.schemas import ProjectChange
from api.tables.projects import Access, Expiry

HOUR_S = 3600
KINDS = {"expiry": Expiry, "access": Access}
"""What some settings are chosen of."""

SETTINGS = frozenset(ProjectChange.model_fields) - service.OF_PEOPLE
"""What of a project its form shows and changes."""

Hours = Annotated[float, Field(ge=0, le=8784, allow_inf_nan=False)]


class SettingsForm(BaseModel):
    """The settings of a project: GPUs, cores, GiB and hours, moments in UTC; what is empty has no limit, or no end."""

    description: forms.Line = ""
    quota: forms.Amount = 0
    over_quota: bool = False
    starts_at: forms.Line = ""
    ends_at: forms.Line = ""
    on_expiry: Expiry = Expiry.STOP
    training_group: forms.Line = ""
    interactive_group: forms.Line = ""
    over_quota_weight: int | None = None
    limit: forms.Amount | None = None
    cpu_quota: forms.Amount | None = None
    cpu_limit: forms.Amount | None = None
    memory_quota: forms.Amount | None = None
    memory_limit: forms.Amount | None = None
    interactive_limit: Hours = 0
    interactive_extension: Hours = 0
    min_runtime: Hours | None = None
    session_access: Access = Access.PROJECT
    shown: forms.Shown = None


class NewForm(SettingsForm):
    """A project to create."""

    name: forms.Line = ""
    domain: forms.Line = ""
    members: forms.Line = ""
    managers: forms.Line = ""


class ChangeForm(SettingsForm):
    """What to change: who comes in and who goes, and where it is `described`, all settings.

    Names are parted by spaces or commas. A browser sends what is empty as it does what is left out.
    """

    described: bool = False
    add_members: forms.Line = ""
    remove_members: forms.Line = ""
    add_managers: forms.Line = ""
    remove_managers: forms.Line = ""


async def groups_for(db: AsyncSession, caller: Identity, domain: str | None) -> list[str]:
    """Return the names of the resource groups that a caller may let a project of a domain keep to."""
    return [group.name for group in await groups.list_groups(caller, db) if group.domain in (None, domain)]


def settings(form: SettingsForm) -> dict[str, Any]:
    """Return the settings of a form, as the API takes them: of those that it `shown`, where it says that, no others."""
    shown = form.shown
    plain = {"description", "over_quota", "over_quota_weight", "on_expiry", "session_access"}
    body: dict[str, Any] = form.model_dump(include=plain)
    body |= {"quota_milli": forms.whole("quota_milli", form.quota, 1000)}
    body |= {
        f"{name}_{unit}": forms.whole_or_none(f"{name}_{unit}", getattr(form, name), parts)
        for unit, parts, names in (
            ("milli", 1000, ("limit", "cpu_quota", "cpu_limit")),
            ("mib", 1024, ("memory_quota", "memory_limit")),
            ("s", HOUR_S, ("interactive_limit", "interactive_extension", "min_runtime")),
        )
        for name in names
    }
    body |= {"training_group": form.training_group or None, "interactive_group": form.interactive_group or None}
    period = (shown or {}).get("period") or {}
    body["period"] = {name: _moment(getattr(form, name), period.get(name)) for name in ("starts_at", "ends_at")}
    return body if shown is None else {name: value for name, value in body.items() if name in shown}


def _moment(written: str, shown: str | None) -> str | None:
    """Return a moment as the API takes it; one that was shown, to the minute, and not written anew is as it was."""
    if not written:
        return None
    return shown if shown and shown.startswith(written) else f"{written}Z"
