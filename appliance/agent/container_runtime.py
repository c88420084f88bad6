"""The interface of a container runtime for the agent: the Docker Engine of a machine, or a Kubernetes cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from appliance.agent.supervision import Work
from appliance.agent.volume_folders import VolumeFolders
from common.checks import Check
from common.gpu.share import GpuShare
from common.protocol import ContainerSpec, ContainerState, ImageState, NodeInfo


class Containers(Protocol):
    """All containers of a node. `changed` is set whenever one of them, or what the node has, changes."""

    changed: asyncio.Event

    def states(self) -> list[ContainerState]:
        """Return the state of every container."""

    async def launch(self, spec: ContainerSpec) -> ContainerState:
        """Run the container of `spec` unless it is known already; return its state. Raises PenstockError."""

    async def resize(self, identity: str, gpu_shares: Sequence[GpuShare]) -> ContainerState:
        """Give a running container other shares of its GPUs; raises PenstockError."""

    async def remove(self, identity: str, grace_s: int) -> None:
        """Stop and remove a container; no error where there is none."""

    async def logs(self, identity: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        """Return the log of a container, with `follow` as it grows; raises NotFoundError where there is none."""

    async def rebuild(self) -> None:
        """Learn what runs already; raises PenstockError."""

    async def watch(self) -> None:
        """Follow what happens, for ever."""

    async def close(self) -> None:
        """Let go of what is under way; containers go on."""


class RunningTerminal(Protocol):
    """A command in a running container."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield what the command writes, with the output that it is of, until it ends."""

    async def write(self, data: bytes) -> None:
        """Give the command input."""

    async def write_eof(self) -> None:
        """Tell the command that its input has ended."""

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the terminal."""

    async def exit_code(self) -> int:
        """Return the exit code of a command whose output has ended; raises PenstockError."""


class Opener(Protocol):
    """Opens terminals."""

    def __call__(self, identity: str, command: list[str], *, tty: bool) -> AbstractAsyncContextManager[RunningTerminal]:
        """Return a command to start in a container."""


class Images(Protocol):
    """The images of a node."""

    async def ask(self, reference: str) -> ImageState:
        """Return what is known of an image, after a pull of it was begun where it is missing."""


@dataclass(frozen=True)
class ContainerRuntime:
    """What runs the containers of one agent, and has their `volumes`.

    `begin` is called before anything is asked of `containers`. `tasks`, by their names, must run beside them for ever;
    `is_stuck` says whether the agent should be started anew, and `close` lets go of the rest at its end. `looks`, by
    their names, are what it adds to the checks of the node's health.
    """

    node_info: Callable[[], NodeInfo]
    containers: Containers
    images: Images
    terminal: Opener
    volumes: VolumeFolders
    begin: Callable[[], None]
    tasks: Mapping[str, Work]
    is_stuck: Callable[[], bool]
    close: Callable[[], None]
    looks: Mapping[str, Callable[[], Iterable[Check]]] = field(default_factory=dict)
