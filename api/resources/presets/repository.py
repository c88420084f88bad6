"""Queries of presets."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables.presets import Preset


async def every(db: AsyncSession) -> Sequence[Preset]:
    """Return all presets, the smallest first."""
    order = (Preset.cpu_milli, Preset.gpu_milli, Preset.memory_mib, Preset.name)
    return (await db.scalars(select(Preset).order_by(*order))).all()


async def by_name(db: AsyncSession, name: str) -> Preset | None:
    """Return the preset of that name."""
    return await db.get(Preset, name)


def add(db: AsyncSession, preset: Preset) -> None:
    """Add a preset to the transaction."""
    db.add(preset)


async def delete(db: AsyncSession, preset: Preset) -> None:
    """Delete a preset."""
    await db.delete(preset)
