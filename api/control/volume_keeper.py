"""Keeper of volumes: lets nodes remove the folders of those that go, and look for the folders that there are.

Any node that has the storage mounted will do. A volume is gone when its files are: one node has removed them, or none
that has the storage mounted has them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import Clock
from api.control.reconcilers.failures import OUTAGES, Failures
from api.database import Database
from api.engine.base import AgentAddress, Engine
from api.resources.nodes import service as nodes
from api.resources.sessions import service as sessions
from api.resources.volumes import adoption
from api.resources.volumes import service as volumes
from api.settings import Settings
from api.tables.nodes import NodeState
from api.tables.sessions import Session
from api.tables.volumes import Volume
from common.errors import PenstockError
from common.storage_protocol import StorageState

log = structlog.get_logger()

LOOK_S = 900.0
"""How often the folders of the storage are looked at, in seconds: sizes may be that old."""
POLL_S = 2.0
"""How long after an answer that settles nothing a node is asked again."""
RETRY_S = 30.0
"""The same after an error, and where none answers."""
ASKED = 8
"""So many nodes have to say that they have no folder, where there are as many: one may lack the mount."""
AT_ONCE = 20
"""Most folders that are removed at the same time."""
REMOVE, LOOK, LINK = "to remove a volume", "to look at the storage", "to find the volumes of a session"
NOBODY = "no node that has the storage answers: a worker that mounts it has to delete its files"


@dataclass(frozen=True)
class _Outcome:
    """What nodes say of a folder that is to go."""

    gone: bool
    reason: str = ""


class VolumeKeeper:
    """Remembers when to ask again; only the leader runs it."""

    def __init__(
        self, database: Database, engine: Engine, settings: Settings, clock: Clock, failures: Failures
    ) -> None:
        """Begin with a look at the storage."""
        self._failures = failures
        self._database = database
        self._engine = engine
        self._root = str(settings.pvc_root) if settings.pvc_root else ""
        self._storage = settings.pvc_storage
        self._clock = clock
        self._look_at = 0.0
        self._next: dict[UUID, float] = {}

    async def due(self, db: AsyncSession, *, going: bool = True) -> bool:
        """Return whether there is anything to do now; without `going` no files of volumes are to go."""
        if not self._root:
            return False
        moment = self._clock.monotonic()
        ids = [volume.id for volume in await volumes.deleting(db, self._storage)] if going else []
        self._next = {id_: self._next.get(id_, 0.0) for id_ in ids}
        return self._look_at <= moment or any(at <= moment for at in self._next.values())

    async def work(self) -> None:
        """Remove what is to go, then look at what there is; what is removed is not looked at, and not found again."""
        async with self._database.reading() as db:
            agents = await _agents(db)
            going = await volumes.deleting(db, self._storage)
        moment = self._clock.monotonic()
        for volume in [volume for volume in going if self._next.get(volume.id, 0.0) <= moment][:AT_ONCE]:
            self._next[volume.id] = moment + POLL_S
            await self._alone(REMOVE, volume.id, self._remove(volume, agents))
        if self._look_at <= moment:
            self._look_at = moment + (RETRY_S if agents else POLL_S)
            await self._link()
            await self._alone(LOOK, "", self._look(agents, moment))

    async def _alone(self, what: str, key: UUID | str, work: Coroutine[Any, Any, None]) -> None:
        """Do one thing; where it fails unexpectedly the others go on, and after some times it waits for long."""
        try:
            await work
        except OUTAGES:
            raise
        except Exception as error:
            if self._failures.note(what, key, error):
                later = self._clock.monotonic() + LOOK_S
                if isinstance(key, UUID):
                    self._next[key] = later
                else:
                    self._look_at = later
        else:
            self._failures.forget(what, key)

    async def _remove(self, volume: Volume, agents: Sequence[AgentAddress]) -> None:
        outcome = await self._ask(volume, agents)
        if outcome.reason:
            self._next[volume.id] = self._clock.monotonic() + RETRY_S
        await self._note(volume, outcome)

    async def _ask(self, volume: Volume, agents: Sequence[AgentAddress]) -> _Outcome:
        """Ask nodes one after the other, until one has the folder; it is gone where several have none."""
        folder, answered = str(PurePosixPath(self._root) / volume.folder), 0
        for agent in agents:
            if answered == ASKED:
                break
            try:
                found = await self._engine.remove_folder(agent, folder)
            except PenstockError as error:
                log.info("volume", id=str(volume.id), node=agent.name, reason=str(error))
                continue
            if found.there:
                return _Outcome(gone=False, reason=found.error and f"{agent.name}: {found.error}")
            # the empty place of a mount has no folder either
            answered += found.mounted
        return _Outcome(gone=answered > 0, reason="" if answered else NOBODY)

    async def _note(self, volume: Volume, outcome: _Outcome) -> None:
        if not outcome.gone and outcome.reason == volume.reason:
            return
        async with self._database.transaction() as db:
            row = await volumes.one_deleting(db, volume.id)
            if row is None:
                return
            if outcome.gone:
                log.info("volume removed", id=str(volume.id), name=volume.name)
                await volumes.delete_row(db, row)
            else:
                row.reason = outcome.reason

    async def _link(self) -> None:
        """Give volumes to the sessions that were submitted before these had rows."""
        async with self._database.reading() as db:
            found = await sessions.unlinked(db, self._root)
        for session in found:
            sources = {PurePosixPath(mount["source"]) for mount in session.mounts}
            inside = (source for source in sources if source.is_relative_to(self._root))
            folders = {str(source.relative_to(self._root)) for source in inside}
            own = [folder for folder in sorted(folders) if folder.startswith(f"{session.project.name}/")]
            await self._alone(LINK, session.id, self._link_one(session, own))

    async def _link_one(self, session: Session, folders: Sequence[str]) -> None:
        async with self._database.transaction() as db:
            for folder in folders:
                await adoption.link(db, session.project_id, self._storage, session.id, folder)

    async def _look(self, agents: Sequence[AgentAddress], moment: float) -> None:
        seen = await self._seen(agents)
        if seen is None:
            return
        async with self._database.transaction() as db:
            for volume in await adoption.take_stock(db, self._storage, seen):
                log.info("volume adopted", id=str(volume.id), folder=volume.folder, state=str(volume.state))
        self._look_at = moment + LOOK_S

    async def _seen(self, agents: Sequence[AgentAddress]) -> StorageState | None:
        for agent in agents:
            try:
                return await self._engine.storage(agent, self._root)
            except PenstockError as error:
                log.info("storage", node=agent.name, reason=str(error))
        return None


async def _agents(db: AsyncSession) -> list[AgentAddress]:
    ready = [node for node in await nodes.every(db) if node.state is NodeState.READY]
    return [AgentAddress(node.name, node.address, node.port) for node in ready]
