"""Presets: sizes of containers that people choose by name, and the changes that administrators make."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Form, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router, back_to
from api.endpoints import presets
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.presets.schemas import PresetChange, PresetRequest
from api.resources.schemas import NamePath
from api.settings import Settings
from api.tables.presets import Preset
from common.gpu.kinds import Enforcement
from common.protocol import DEFAULT_SHM_MIB

router = Router(prefix="/presets")


class PresetForm(BaseModel):
    """A preset to create or to change, for one container: GPUs, cores, GiB of memory, MiB of `/dev/shm`."""

    name: forms.Line = ""
    description: forms.Line = ""
    gpus: forms.Amount = 0
    cores: forms.Amount = 0
    memory_gib: forms.Amount = 0
    shm_mib: Annotated[int, Field(ge=0)] = DEFAULT_SHM_MIB
    enforcement: Enforcement = Enforcement.NONE
    shown: forms.Shown = None


@router.get("")
@action(Action.PRESET_READ)
async def list_presets(request: Request, caller: Caller, db: Reading) -> Response:
    """Show the presets, the smallest first."""
    stamp = await pages.stamp(request, db, (*stamps.PEOPLE, Preset), caller.id)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {"presets": await presets.list_presets(db), "kinds": Enforcement, "shm_mib": DEFAULT_SHM_MIB}
    return await pages.live(request, "presets.html", "presets_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.PRESET_MANAGE)
async def create_preset(form: Annotated[PresetForm, Form()], db: Transaction, settings: SettingsOf) -> None:
    """Create a preset."""
    body = {"name": form.name, **_body(form, settings)}
    await presets.create_preset(forms.checked(PresetRequest, body), db, settings)


@router.get("/{name}")
@action(Action.PRESET_MANAGE)
async def show_preset(name: NamePath, request: Request, db: Reading) -> Response:
    """Show a preset to whoever changes it."""
    return pages.page(request, "preset.html", {"preset": await presets.get_preset(name, db), "kinds": Enforcement})


@router.post("/{name}", status_code=204, dependencies=[back_to("/presets")])
@action(Action.PRESET_MANAGE)
async def change_preset(
    name: NamePath, form: Annotated[PresetForm, Form()], db: Transaction, settings: SettingsOf
) -> None:
    """Change a preset; sessions that were submitted with it stay as they are."""
    change = forms.differing(PresetChange, _body(form, settings), form.shown)
    await presets.change_preset(name, change, db, settings)


@router.post("/{name}/delete", status_code=204, dependencies=[REFRESH])
@action(Action.PRESET_MANAGE)
async def delete_preset(name: NamePath, db: Transaction) -> None:
    """Delete a preset; sessions that were submitted with it go on."""
    await presets.delete_preset(name, db)


def _body(form: PresetForm, settings: Settings) -> dict[str, Any]:
    """Return what a form says of a preset, but for its name, as the API takes it."""
    return {
        **form.model_dump(include={"description", "shm_mib", "enforcement"}),
        "gpu_milli": forms.whole("gpu_milli", form.gpus, 1000, settings.granularity.step_milli),
        "cpu_milli": forms.whole("cpu_milli", form.cores, 1000),
        "memory_mib": forms.whole("memory_mib", form.memory_gib, 1024),
    }
