"""User policies: what the sessions of one user may hold together, and the changes that administrators make."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Form, Request, Response
from pydantic import BaseModel

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router, back_to
from api.endpoints import user_policies
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.schemas import NamePath
from api.resources.user_policies.schemas import PolicyChange, PolicyRequest

router = Router(prefix="/user-policies")


class PolicyForm(BaseModel):
    """A policy to create or to change: GPUs, cores and GiB; what is empty has no limit."""

    name: forms.Line = ""
    description: forms.Line = ""
    max_sessions: int | None = None
    gpus: forms.Amount | None = None
    cores: forms.Amount | None = None
    memory_gib: forms.Amount | None = None
    shown: forms.Shown = None


@router.get("")
@action(Action.POLICY_READ)
async def list_policies(request: Request, caller: Caller, db: Reading) -> Response:
    """Show the user policies by name."""
    stamp = await pages.stamp(request, db, stamps.PEOPLE, caller.id)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {"policies": await user_policies.list_policies(db)}
    return await pages.live(request, "policies.html", "policies_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.POLICY_MANAGE)
async def create_policy(form: Annotated[PolicyForm, Form()], db: Transaction) -> None:
    """Create a user policy."""
    await user_policies.create_policy(forms.checked(PolicyRequest, {"name": form.name, **_body(form)}), db)


@router.get("/{name}")
@action(Action.POLICY_MANAGE)
async def show_policy(name: NamePath, request: Request, db: Reading) -> Response:
    """Show a user policy to whoever changes it."""
    return pages.page(request, "policy.html", {"policy": await user_policies.get_policy(name, db)})


@router.post("/{name}", status_code=204, dependencies=[back_to("/user-policies")])
@action(Action.POLICY_MANAGE)
async def change_policy(name: NamePath, form: Annotated[PolicyForm, Form()], db: Transaction) -> None:
    """Change a user policy; it holds for what is submitted from now on."""
    await user_policies.change_policy(name, forms.differing(PolicyChange, _body(form), form.shown), db)


@router.post("/{name}/delete", status_code=204, dependencies=[REFRESH])
@action(Action.POLICY_MANAGE)
async def delete_policy(name: NamePath, db: Transaction) -> None:
    """Delete a user policy that no user and no domain has."""
    await user_policies.delete_policy(name, db)


def _body(form: PolicyForm) -> dict[str, Any]:
    """Return what a form says of a policy, but for its name, as the API takes it."""
    return {
        **form.model_dump(include={"description", "max_sessions"}),
        "max_gpu_milli": forms.whole_or_none("max_gpu_milli", form.gpus, 1000),
        "max_cpu_milli": forms.whole_or_none("max_cpu_milli", form.cores, 1000),
        "max_memory_mib": forms.whole_or_none("max_memory_mib", form.memory_gib, 1024),
    }
