"""Endpoints of the caller's own API keys."""

from __future__ import annotations

from uuid import UUID

from api.auth.policy import Action
from api.endpoints.access import Caller, KnownCallerOf, SettingsOf, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.api_keys import service
from api.resources.api_keys.schemas import ApiKeyRequest, ApiKeyView, NewApiKeyView, RevokedView

router = Router(prefix="/api-keys", tags=["API keys"])


@router.get("")
@action(Action.ACCOUNT_READ)
async def list_api_keys(caller: Caller, db: Reading) -> list[ApiKeyView]:
    """List the caller's keys."""
    return [ApiKeyView.model_validate(key) for key in await service.of_user(db, caller.id)]


@router.post("", status_code=201)
@action(Action.ACCOUNT_CHANGE)
async def create_api_key(
    request: ApiKeyRequest, known: KnownCallerOf, db: Transaction, settings: SettingsOf
) -> NewApiKeyView:
    """Make a key; the answer shows it this once."""
    key, secret = await service.create(
        db,
        known.identity.id,
        request,
        settings.keys_per_user,
        made_by=known.key_id,
        until=known.key_ends_at,
    )
    return NewApiKeyView(**ApiKeyView.model_validate(key).model_dump(), key=secret)


@router.delete("/{key_id}")
@action(Action.ACCOUNT_CHANGE)
async def delete_api_key(key_id: UUID, caller: Caller, db: Transaction) -> RevokedView:
    """Delete one of the caller's keys; it is worth nothing afterwards, nor is any that was made with it."""
    return RevokedView(with_it=await service.revoke(db, caller.id, key_id))
