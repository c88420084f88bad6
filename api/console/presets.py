"""Presets: sizes of containers that people choose by name, and the changes that administrators make."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import Router
from api.endpoints import presets
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.presets.schemas import PresetRequest
from api.resources.schemas import NamePath
from api.tables.presets import Preset
from common.gpu.kinds import Enforcement
from common.protocol import DEFAULT_SHM_MIB

router = Router(prefix="/presets")
Line = Annotated[str, Field(max_length=2000)]
Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class PresetForm(BaseModel):
    """A preset to create, for one container: GPUs, cores, GiB of memory, MiB of `/dev/shm`."""

    name: Line = ""
    description: Line = ""
    gpus: Amount = 0
    cores: Amount = 0
    memory_gib: Amount = 0
    shm_mib: Annotated[int, Field(ge=0)] = DEFAULT_SHM_MIB
    enforcement: Enforcement = Enforcement.NONE


@router.get("")
@action(Action.PRESET_READ)
async def list_presets(request: Request, caller: Caller, db: Reading) -> Response:
    """Show the presets, the smallest first."""
    stamp = await stamps.stamp(db, (*stamps.PEOPLE, Preset), caller.id)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {"presets": await presets.list_presets(db), "kinds": Enforcement, "shm_mib": DEFAULT_SHM_MIB}
    return await pages.live(request, "presets.html", "presets_live.html", values, stamp=stamp)


@router.post("", status_code=204)
@action(Action.PRESET_MANAGE)
async def create_preset(
    form: Annotated[PresetForm, Form()], db: Transaction, settings: SettingsOf, response: Response
) -> None:
    """Create a preset."""
    body = form.model_dump(include={"name", "description", "shm_mib", "enforcement"})
    body |= {"gpu_milli": round(form.gpus * 1000), "cpu_milli": round(form.cores * 1000)}
    body |= {"memory_mib": round(form.memory_gib * 1024)}
    await presets.create_preset(forms.checked(PresetRequest, body), db, settings)
    response.headers["HX-Trigger"] = "refresh"


@router.post("/{name}/delete", status_code=204)
@action(Action.PRESET_MANAGE)
async def delete_preset(name: NamePath, db: Transaction, response: Response) -> None:
    """Delete a preset; sessions that were submitted with it go on."""
    await presets.delete_preset(name, db)
    response.headers["HX-Trigger"] = "refresh"
