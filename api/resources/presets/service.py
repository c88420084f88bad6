"""Rules of presets."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.presets import repository
from api.resources.presets.schemas import PresetChange, PresetRequest
from api.settings import Settings
from api.tables.presets import Preset
from common.errors import ConflictError, InputError, NotFoundError
from common.gpu.share import check_share

every = repository.every


async def get(db: AsyncSession, name: str) -> Preset:
    """Return one preset; raises NotFoundError."""
    preset = await repository.by_name(db, name)
    if preset is None:
        raise NotFoundError(f"there is no preset {name}", where="name", hint="list the presets")
    return preset


async def wanted(db: AsyncSession, name: str) -> Preset:
    """Return the preset that a session names; raises InputError that names those there are."""
    preset = await repository.by_name(db, name)
    if preset is None:
        names = ", ".join(preset.name for preset in await repository.every(db))
        raise InputError(
            f"there is no preset {name}",
            where="preset",
            hint=f"choose one of {names}" if names else "ask an administrator for one, or write the amounts out",
        )
    return preset


async def create(db: AsyncSession, request: PresetRequest, settings: Settings) -> Preset:
    """Create a preset; raises ConflictError for a name that is taken, InputError for what the granularity forbids."""
    if await repository.by_name(db, request.name):
        raise ConflictError(f"there is a preset {request.name} already", where="name", hint="choose another name")
    preset = Preset(**request.model_dump())
    check_amounts(preset.gpu_milli, preset.cpu_milli, settings)
    repository.add(db, preset)
    await db.flush()
    return preset


async def change(db: AsyncSession, name: str, request: PresetChange, settings: Settings) -> Preset:
    """Change a preset."""
    preset = await get(db, name)
    for field, value in request.model_dump(exclude_unset=True).items():
        setattr(preset, field, value)
    check_amounts(preset.gpu_milli, preset.cpu_milli, settings)
    await db.flush()
    return preset


async def delete(db: AsyncSession, name: str) -> None:
    """Delete a preset; sessions that were submitted with it go on."""
    await repository.delete(db, await get(db, name))


def check_amounts(gpu_milli: int, cpu_milli: int, settings: Settings) -> None:
    """Raise InputError for a share that the granularity forbids, and for neither GPUs nor CPUs."""
    if gpu_milli:
        check_share(gpu_milli, settings.granularity)
    elif not cpu_milli:
        raise InputError("without GPUs it has to say how many CPUs", where="cpu_milli", hint="ask for one CPU, or more")
