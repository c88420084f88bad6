"""The interface of engines: launch, terminate and observe containers, read their logs, open terminals in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from common.audit_protocol import AuditHeads
from common.errors import UnavailableError
from common.protocol import (
    ContainerSpec,
    ContainerState,
    GpuShares,
    ImageState,
)
from common.sentence import Sentence
from common.storage_protocol import FolderRemoval, StorageState


@dataclass(frozen=True)
class AgentAddress:
    """The name of a node, and where its agent listens."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class TerminalSize:
    """How many lines a terminal has, and how many characters fit in one."""

    rows: int
    cols: int


class UnreachableError(UnavailableError):
    """An agent did not do what it was asked for, and may another time.

    `delivered` is False where the request certainly never reached it, `answered` True where it said itself that it
    failed.
    """

    def __init__(self, reason: str, *, delivered: bool, answered: bool = False) -> None:
        """Say why, and whether the agent may have acted all the same."""
        super().__init__(reason, hint=Sentence("look at the node's {service} service", service="penstock-agent"))
        self.delivered = delivered
        self.answered = answered


class Terminal(Protocol):
    """An open terminal: bytes are what is typed and shown, text is ExecControl as JSON."""

    async def send(self, frame: bytes | str) -> None:
        """Send a frame to the container."""

    def __aiter__(self) -> AsyncIterator[bytes | str]:
        """Return the frames from the container until it ends."""


class Engine(Protocol):
    """What the reconcilers need of the machines.

    Every call is idempotent by the container's id. Raises UnreachableError where the agent does not answer, and
    another PenstockError where it refuses.
    """

    async def probe(self, agent: AgentAddress) -> None:
        """Find out whether an agent can be called."""

    async def launch(self, agent: AgentAddress, spec: ContainerSpec) -> ContainerState:
        """Bring a container to run; the state may still be on its way there."""

    async def terminate(self, agent: AgentAddress, container_id: str, grace_s: int) -> None:
        """Stop and remove a container; no error where there is none."""

    async def resize(self, agent: AgentAddress, container_id: str, shares: GpuShares) -> ContainerState:
        """Give a running container other shares of the GPUs that it has; no change where it has them already."""

    async def pull(self, agent: AgentAddress, reference: str) -> ImageState:
        """Bring an image onto a node; asked again, it tells how far that has come, and an error once."""

    async def storage(self, agent: AgentAddress, root: str) -> StorageState:
        """Return what a node sees of the storage at a folder."""

    async def remove_folder(self, agent: AgentAddress, folder: str) -> FolderRemoval:
        """Let a node remove a folder with what is in it; asked again, it tells how far that is."""

    async def audit_heads(self, agent: AgentAddress) -> AuditHeads:
        """Return how far a node has seen the audit log go."""

    def logs(self, agent: AgentAddress, container_id: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        """Return the last `tail` lines of a container's log (None: all), with `follow` as it grows."""

    def terminal(
        self, agent: AgentAddress, container_id: str, command: list[str], *, tty: TerminalSize | None, apart: bool
    ) -> AbstractAsyncContextManager[Terminal]:
        """Run a command in a container, with a terminal of a size on it or without; its errors come `apart`."""

    async def close(self) -> None:
        """Let go of every connection."""
