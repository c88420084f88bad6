"""The caller's API keys: what there is, a new one, which is shown once, and the end of one."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Form, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action, KeyScope
from api.console import forms, pages
from api.console.routes import REFRESH, Router
from api.endpoints import api_keys
from api.endpoints.access import Caller, KnownCallerOf, SettingsOf, action
from api.endpoints.transactions import Reading, Transaction
from api.resources.api_keys import service
from api.resources.api_keys.schemas import ApiKeyRequest

router = Router(prefix="/keys")


class KeyForm(BaseModel):
    """The form as a browser sends it; a key without `days` holds for ever."""

    name: Annotated[str, Field(max_length=256)] = ""
    scope: KeyScope = KeyScope.SUBMIT
    days: int | None = None


@router.get("")
@action(Action.ACCOUNT_READ)
async def show_keys(request: Request, caller: Caller, db: Reading) -> Response:
    """Show the caller's keys, the oldest first."""
    values = {"keys": await service.of_user(db, caller.id), "scopes": KeyScope}
    return await pages.live(request, "keys.html", "keys_live.html", values)


@router.post("")
@action(Action.ACCOUNT_CHANGE)
async def make_key(
    *,
    form: Annotated[KeyForm, Form()],
    request: Request,
    known: KnownCallerOf,
    db: Transaction,
    settings: SettingsOf,
) -> Response:
    """Make a key, and show it this once."""
    wanted = forms.checked(ApiKeyRequest, form.model_dump())
    made = await api_keys.create_api_key(wanted, known, db, settings)
    answer = pages.page(request, "key_made.html", {"made": made})
    answer.headers["HX-Trigger"] = "refresh"
    return answer


@router.post("/{key_id}/revoke", status_code=204, dependencies=[REFRESH])
@action(Action.ACCOUNT_CHANGE)
async def revoke_key(key_id: UUID, caller: Caller, db: Transaction) -> None:
    """End one of the caller's keys, with those that were made with it."""
    await service.revoke(db, caller.id, key_id)
