"""Rules of presets."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.presets import repository
from api.resources.presets.schemas import PresetChange, PresetRequest
from api.settings import Settings
from api.tables.presets import Preset
from common.errors import ConflictError, InputError, NotFoundError
from common.gpu.share import check_share
from common.sentence import Sentence

every = repository.every


async def get(db: AsyncSession, name: str) -> Preset:
    """Return one preset; raises NotFoundError."""
    preset = await repository.by_name(db, name)
    if preset is None:
        raise NotFoundError(
            Sentence("there is no preset {name}", name=name), where="name", hint=Sentence("list the presets")
        )
    return preset


async def wanted(db: AsyncSession, name: str) -> Preset:
    """Return the preset that a session names; raises InputError that names those there are."""
    preset = await repository.by_name(db, name)
    if preset is None:
        names = ", ".join(preset.name for preset in await repository.every(db))
        raise InputError(
            Sentence("there is no preset {name}", name=name),
            where="preset",
            hint=Sentence("choose one of {names}", names=names)
            if names
            else Sentence("ask an administrator for one, or write the amounts out"),
        )
    return preset


async def create(db: AsyncSession, request: PresetRequest, settings: Settings) -> Preset:
    """Create a preset; raises ConflictError for a name that is taken, InputError for what the granularity forbids."""
    if await repository.by_name(db, request.name):
        raise ConflictError(
            Sentence("there is a preset {name} already", name=request.name),
            where="name",
            hint=Sentence("choose another name"),
        )
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
        raise InputError(
            Sentence("without GPUs it has to say how many CPUs"),
            where="cpu_milli",
            hint=Sentence("ask for one CPU, or more"),
        )
