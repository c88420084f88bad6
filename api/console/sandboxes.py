"""Sandboxes: what programs of sessions may not ask of the kernel, and the changes that administrators make."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Form, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import Table

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router, back_to
from api.endpoints import sandboxes
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.sandboxes.schemas import SandboxChange, SandboxRequest
from api.resources.schemas import NamePath
from api.tables.base import Base
from api.tables.images import Image
from api.tables.sandboxes import Sandbox, sandbox_images, sandbox_projects
from common.sandbox_rules import parse_rule
from common.sentence import Sentence

OF_SANDBOXES: tuple[type[Base] | Table, ...] = (*stamps.PEOPLE, Sandbox, sandbox_images, sandbox_projects, Image)
"""What says how sandboxes are."""

router = Router(prefix="/sandboxes")
Lines = Annotated[str, Field(max_length=1 << 16)]


class SandboxForm(BaseModel):
    """A sandbox to create or to change: a rule a line, as the command line writes it, and names of whom it is for."""

    name: forms.Line = ""
    description: forms.Line = ""
    rules: Lines = ""
    site_wide: bool = False
    projects: Lines = ""
    images: Lines = ""
    shown: forms.Shown = None


@router.get("")
@action(Action.SANDBOX_READ)
async def list_sandboxes(request: Request, caller: Caller, db: Reading) -> Response:
    """Show the sandboxes by name, with what they deny."""
    stamp = await pages.stamp(request, db, OF_SANDBOXES, caller.id)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {"sandboxes": await sandboxes.list_sandboxes(caller, db)}
    return await pages.live(request, "sandboxes.html", "sandboxes_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.SANDBOX_MANAGE)
async def create_sandbox(form: Annotated[SandboxForm, Form()], caller: Caller, db: Transaction) -> None:
    """Create a sandbox."""
    wanted = forms.checked(SandboxRequest, {"name": form.name, **_body(form)})
    await sandboxes.create_sandbox(wanted, caller, db)


@router.get("/{name}")
@action(Action.SANDBOX_MANAGE)
async def show_sandbox(name: NamePath, request: Request, caller: Caller, db: Reading) -> Response:
    """Show a sandbox to whoever changes it."""
    return pages.page(request, "sandbox.html", {"sandbox": await sandboxes.get_sandbox(name, caller, db)})


@router.post("/{name}", status_code=204, dependencies=[back_to("/sandboxes")])
@action(Action.SANDBOX_MANAGE)
async def change_sandbox(name: NamePath, form: Annotated[SandboxForm, Form()], caller: Caller, db: Transaction) -> None:
    """Change a sandbox; sessions that were submitted before keep the rules of then."""
    await sandboxes.change_sandbox(name, forms.differing(SandboxChange, _body(form), form.shown), caller, db)


@router.post("/{name}/delete", status_code=204, dependencies=[REFRESH])
@action(Action.SANDBOX_MANAGE)
async def delete_sandbox(name: NamePath, db: Transaction) -> None:
    """Delete a sandbox; sessions that were submitted with it keep its rules."""
    await sandboxes.delete_sandbox(name, db)


def _body(form: SandboxForm) -> dict[str, Any]:
    """Return what a form says of a sandbox, but for its name, as the API takes it. Raises InputError."""
    return {
        **form.model_dump(include={"description", "site_wide"}),
        "rules": [parse_rule(line, "rules", Sentence) for line in form.rules.splitlines() if line.strip()],
        "projects": forms.names(form.projects),
        "images": forms.names(form.images),
    }
