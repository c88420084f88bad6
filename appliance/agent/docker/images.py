"""Images that are pulled to this node: each once, however many wait for it, in threads of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import anyio
import structlog
from anyio import to_thread

from appliance.agent.docker.engine import Image
from appliance.agent.labels import check_image
from common import image_references
from common.disk_limit import NO_DISK, DiskLimit
from common.errors import InputError, NotFoundError, PenstockError, UnavailableError
from common.protocol import ImageState, ImageStatus

log = structlog.get_logger()

MAX_PULLS = 3
"""Pulls at the same time; further ones wait for their turn."""


class Puller(Protocol):
    """What is needed of the Docker Engine; every call blocks."""

    def image(self, reference: str) -> Image | None:
        """Return an image that is on this node."""

    def pull(self, image: str, progress: Callable[[int, int], None]) -> None:
        """Pull an image."""


@dataclass
class _Pull:
    """A pull that goes on, or has ended and waits to be told: `error` None means well."""

    task: asyncio.Task[None] | None = None
    pulled: int = 0
    size: int = 0
    error: PenstockError | None = None

    def note(self, pulled: int, size: int) -> None:
        """Keep how far it has come; called from the thread that pulls."""
        self.pulled, self.size = pulled, size


class Images:
    """The pulls of this node."""

    def __init__(self, engine: Puller, registries: Collection[str], disk: DiskLimit = NO_DISK) -> None:
        """Start with no pull; only from `registries` anything is pulled, and only while the engine's disk has room."""
        self._engine = engine
        self._registries = registries
        self._disk = disk
        self._pulls: dict[str, _Pull] = {}
        self._threads = anyio.CapacityLimiter(MAX_PULLS)

    async def ask(self, reference: str) -> ImageState:
        """Return what is known of an image, after a pull of it was begun where it is missing.

        A pull that failed is told once; the next call tries again. An image that no container may have, or that the
        site's registries do not have, has failed, too. Raises EngineAwayError where Docker is away, UnavailableError
        where its disk is too full to pull anything.
        """
        try:
            return await self._ask(reference)
        except InputError as error:
            return ImageState(reference=reference, status=ImageStatus.FAILED, error=str(error))

    async def _ask(self, reference: str) -> ImageState:
        image_references.check(reference)
        pull = self._pulls.get(reference)
        if pull is None:
            if found := await to_thread.run_sync(self._engine.image, reference):
                check_image(reference, found.labels)
                return ImageState(
                    reference=reference,
                    status=ImageStatus.READY,
                    digest=found.digest,
                    size=found.size,
                    pulled=found.size,
                )
            pull = self._begin(reference)
        if pull.error:
            self._pulls.pop(reference, None)
            return ImageState(reference=reference, status=ImageStatus.FAILED, error=str(pull.error))
        return ImageState(
            reference=reference, status=ImageStatus.PULLING, size=max(pull.size, pull.pulled), pulled=pull.pulled
        )

    async def wait(self, reference: str) -> None:
        """Pull an image and wait for it, or for the pull that goes on already; raises PenstockError."""
        known = self._pulls.get(reference)
        # a failure that nobody asked about yet is of the past
        pull = known if known and not known.error else self._begin(reference)
        if pull.task:
            # somebody who no longer waits does not end the pull of the others
            await asyncio.shield(pull.task)
        if pull.error:
            self._pulls.pop(reference, None)
            raise pull.error

    async def close(self) -> None:
        """Let go of every pull; Docker keeps the layers that have come."""
        tasks = [pull.task for pull in self._pulls.values() if pull.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, reference: str) -> _Pull:
        if (known := self._pulls.get(reference)) and not known.error:
            return known
        image_references.check_registry(reference, self._registries)
        self._disk.refuse_where_full(f"pulling {reference}")
        pull = self._pulls[reference] = _Pull()
        pull.task = asyncio.create_task(self._run(reference, pull))
        return pull

    async def _run(self, reference: str, pull: _Pull) -> None:
        try:
            await to_thread.run_sync(
                self._engine.pull, reference, pull.note, limiter=self._threads, abandon_on_cancel=True
            )
        except PenstockError as error:
            pull.error = error
        except Exception as error:
            log.exception("an image cannot be pulled", image=reference, reason=str(error))
            pull.error = UnavailableError(
                f"image {reference} cannot be pulled", where="image", hint="see the agent's journal"
            )
        else:
            self._pulls.pop(reference, None)


def not_here(image: str) -> PenstockError:
    """Return the error of a container whose image is missing and must not be pulled."""
    return NotFoundError(
        f"image {image} is not on this node, and it was asked not to pull it",
        where="image",
        hint="bring the image onto the node, or let it be pulled",
    )
