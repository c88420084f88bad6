"""Domains: companies that share the site, what they have together, and the changes that administrators make."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Form, Request, Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router, back_to
from api.endpoints import domains
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.domains import service
from api.resources.domains.schemas import DomainChange, DomainRequest, DomainView
from api.resources.schemas import NamePath
from api.resources.user_policies import service as user_policies

router = Router(prefix="/domains")


class DomainForm(BaseModel):
    """A domain to create or to change: quota and limit in GPUs; what is empty has none."""

    name: forms.Line = ""
    description: forms.Line = ""
    quota: forms.Amount | None = None
    shares: bool = False
    over_quota_weight: int | None = None
    limit: forms.Amount | None = None
    policy: forms.Line = ""
    shown: forms.Shown = None


@router.get("")
@action(Action.DOMAIN_READ)
async def list_domains(request: Request, caller: Caller, db: Reading) -> Response:
    """Show the domains that the caller may see, by name."""
    stamp = await pages.stamp(request, db, stamps.PEOPLE, caller.id)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {"domains": await domains.list_domains(caller, db), "policies": await _policies(db)}
    return await pages.live(request, "domains.html", "domains_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.DOMAIN_MANAGE)
async def create_domain(form: Annotated[DomainForm, Form()], db: Transaction) -> None:
    """Create a domain."""
    await domains.create_domain(forms.checked(DomainRequest, {"name": form.name, **_body(form)}), db)


@router.get("/{name}")
@action(Action.DOMAIN_MANAGE)
async def show_domain(name: NamePath, request: Request, db: Reading) -> Response:
    """Show a domain to whoever changes it."""
    values = {"domain": DomainView.model_validate(await service.get(db, name)), "policies": await _policies(db)}
    return pages.page(request, "domain.html", values)


@router.post("/{name}", status_code=204, dependencies=[back_to("/domains")])
@action(Action.DOMAIN_MANAGE)
async def change_domain(name: NamePath, form: Annotated[DomainForm, Form()], db: Transaction) -> None:
    """Change a domain. Quotas that are beyond a new limit stay as they are, but grow no more."""
    await domains.change_domain(name, forms.differing(DomainChange, _body(form), form.shown), db)


@router.post("/{name}/delete", status_code=204, dependencies=[REFRESH])
@action(Action.DOMAIN_MANAGE)
async def delete_domain(name: NamePath, db: Transaction) -> None:
    """Delete a domain that no user, project or resource group belongs to."""
    await domains.delete_domain(name, db)


async def _policies(db: AsyncSession) -> list[str]:
    return [policy.name for policy in await user_policies.every(db)]


def _body(form: DomainForm) -> dict[str, Any]:
    """Return what a form says of a domain, but for its name, as the API takes it."""
    return {
        **form.model_dump(include={"description", "shares", "over_quota_weight"}),
        "quota_milli": forms.whole_or_none("quota_milli", form.quota, 1000),
        "limit_milli": forms.whole_or_none("limit_milli", form.limit, 1000),
        "policy": form.policy or None,
    }
