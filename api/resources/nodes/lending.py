"""Nodes as a launcher lends them, seen by the leader: other processes of the API know it from here."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from api.engine.launcher import Held
from api.tables.nodes import Node

NOTHING = Held()


async def note(db: AsyncSession, withheld: Mapping[str, str], foreign: Mapping[str, Held]) -> None:
    """Write why nodes lend nothing, and what others have of each; all other nodes lend all that they have."""
    rows = await db.execute(select(Node.id, Node.name, Node.withheld, Node.foreign_cpu_milli, Node.foreign_memory_mib))
    for id_, name, *before in rows:
        held = foreign.get(name, NOTHING)
        now = withheld.get(name, ""), held.cpu_milli, held.memory_mib
        if now != tuple(before):
            values = dict(zip(("withheld", "foreign_cpu_milli", "foreign_memory_mib"), now, strict=True))
            await db.execute(update(Node).where(Node.id == id_).values(values))
