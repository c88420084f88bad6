"""Checks of images: a node is asked to pull each one, and what it says becomes the image's status."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.control.reconcilers import failures
from api.control.reconcilers.failures import OUTAGES, Failures
from api.database import Database
from api.engine.base import AgentAddress, Engine, UnreachableError
from api.resources.images import repository
from api.resources.nodes import service as nodes
from api.tables.images import UNSETTLED, Image, Status
from api.tables.nodes import NodeMode, NodeState
from common.errors import PenstockError
from common.protocol import ImageState, ImageStatus

log = structlog.get_logger()

POLL_S = 2.0
"""How long after an answer that settles nothing, or none, a node is asked again."""

PULL_LIMIT = timedelta(hours=1)
"""A pull that takes longer has failed."""

PULLED = "to have it pulled"

AT_ONCE = 4
"""How many images are looked for at the same time; a site registers dozens of many GiB each at once."""


class Checker:
    """Finds the images to look for; remembers when to ask for each again."""

    def __init__(self, database: Database, engine: Engine, failures: Failures) -> None:
        """Start with every image that is not settled."""
        self._failures = failures
        self._database = database
        self._engine = engine
        self._next: dict[UUID, float] = {}

    async def due(self, db: AsyncSession) -> list[UUID]:
        """Return the ids of the images to look for now."""
        waiting = (await repository.unsettled(db))[:AT_ONCE]
        self._next = {image_id: self._next[image_id] for image_id in waiting if image_id in self._next}
        return [image_id for image_id in waiting if self._next.get(image_id, 0.0) <= time.monotonic()]

    async def check(self, image_id: UUID) -> None:
        """Ask a node for an image and write down what it says; where that fails too often, the image has failed."""
        self._next[image_id] = time.monotonic() + POLL_S
        try:
            async with self._database.reading() as db:
                image = await repository.by_id(db, image_id)
                agents = await _agents(db, image_id)
            if image is not None and image.status in UNSETTLED:
                await self._note(image, _after(image, await self._pull(image, agents)))
        except OUTAGES:
            raise
        except Exception as error:
            if self._failures.note(PULLED, image_id, error):
                await self._give_up(image_id)
        else:
            self._failures.forget(PULLED, image_id)

    async def _give_up(self, image_id: UUID) -> None:
        async with self._database.reading() as db:
            image = await repository.by_id(db, image_id)
        if image is not None:
            await self._note(image, _failed(failures.reason(PULLED)))

    async def _note(self, image: Image, values: dict[str, Any]) -> None:
        if not values:
            return
        async with self._database.transaction() as db:
            if await repository.note(db, image, values) and "status" in values:
                log.info("image", image=image.title, status=str(values["status"]), error=values.get("error", ""))

    async def _pull(self, image: Image, agents: Sequence[AgentAddress]) -> ImageState | None:
        """Return what the first node that answers says; None where none does."""
        for agent in agents:
            try:
                return await self._engine.pull(agent, image.reference)
            except UnreachableError as error:
                log.info("image", image=image.title, node=agent.name, reason=str(error))
            except PenstockError as error:
                reason = f"{agent.name} refused it: {error.problems[0].reason}"
                return ImageState(reference=image.reference, status=ImageStatus.FAILED, error=reason)
        return None


def _after(image: Image, state: ImageState | None) -> dict[str, Any]:
    """Return what changes of an image by what a node says of it."""
    if state is None or state.status is ImageStatus.PULLING:
        if image.status is Status.PULLING and now() - image.since > PULL_LIMIT:
            return _failed(f"it was not there after {PULL_LIMIT.total_seconds() / 60:g} minutes")
        begun = state is not None and image.status is not Status.PULLING
        return {"status": Status.PULLING, "since": now(), "error": ""} if begun else {}
    if state.status is ImageStatus.FAILED:
        return _failed(state.error or "it cannot be pulled")
    return {"status": Status.READY, "since": now(), "error": "", "digest": state.digest, "size": state.size}


def _failed(error: str) -> dict[str, Any]:
    return {"status": Status.FAILED, "since": now(), "error": error}


async def _agents(db: AsyncSession, image_id: UUID) -> list[AgentAddress]:
    """Return the nodes that may be asked: of an image always the same one first, of many images many."""
    ready = [node for node in await nodes.every(db) if node.state is NodeState.READY and node.mode is NodeMode.ACTIVE]
    ready.sort(key=lambda node: sha256(f"{image_id}/{node.name}".encode()).digest())
    return [AgentAddress(node.name, node.address, node.port) for node in ready]
