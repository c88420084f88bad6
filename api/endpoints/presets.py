"""Endpoints of presets. Everybody sees them; administrators of the site make and change them."""

from __future__ import annotations

from api.auth.policy import Action
from api.endpoints.access import SettingsOf, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.presets import service
from api.resources.presets.schemas import PresetChange, PresetRequest, PresetView
from api.resources.schemas import Done, NamePath

router = Router(prefix="/presets", tags=["presets"])


@router.get("")
@action(Action.PRESET_READ)
async def list_presets(db: Reading) -> list[PresetView]:
    """List the presets, the smallest first."""
    return [PresetView.model_validate(preset) for preset in await service.every(db)]


@router.get("/{name}")
@action(Action.PRESET_READ)
async def get_preset(name: NamePath, db: Reading) -> PresetView:
    """Show one preset."""
    return PresetView.model_validate(await service.get(db, name))


@router.post("", status_code=201)
@action(Action.PRESET_MANAGE)
async def create_preset(request: PresetRequest, db: Transaction, settings: SettingsOf) -> PresetView:
    """Create a preset."""
    return PresetView.model_validate(await service.create(db, request, settings))


@router.patch("/{name}")
@action(Action.PRESET_MANAGE)
async def change_preset(name: NamePath, request: PresetChange, db: Transaction, settings: SettingsOf) -> PresetView:
    """Change a preset; sessions that were submitted with it stay as they are."""
    return PresetView.model_validate(await service.change(db, name, request, settings))


@router.delete("/{name}")
@action(Action.PRESET_MANAGE)
async def delete_preset(name: NamePath, db: Transaction) -> Done:
    """Delete a preset; sessions that were submitted with it go on."""
    await service.delete(db, name)
    return Done()
