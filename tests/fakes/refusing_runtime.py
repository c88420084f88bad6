"""A runtime whose containers do nothing but refuse: what a test says is raised by every call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from appliance.agent.container_runtime import ContainerRuntime, RunningTerminal
from appliance.agent.storages import Storages
from appliance.agent.volume_folders import VolumeFolders
from common.gpu.share import GpuShare
from common.protocol import ContainerSpec, ContainerState, ImageState, NodeInfo


class Refusing:
    """Containers, images and terminals of a node; each call logs a line and raises `error`."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.changed = asyncio.Event()

    def states(self) -> list[ContainerState]:
        return []

    async def launch(self, spec: ContainerSpec) -> ContainerState:
        raise self._refused("launch")

    async def resize(self, identity: str, gpu_shares: Sequence[GpuShare]) -> ContainerState:
        raise self._refused("resize")

    async def remove(self, identity: str, grace_s: int) -> None:
        raise self._refused("remove")

    async def logs(self, identity: str, *, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        raise self._refused("logs")

    async def rebuild(self) -> None:
        """There is nothing."""

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """There is nothing."""

    async def ask(self, reference: str) -> ImageState:
        raise self._refused("ask")

    @asynccontextmanager
    async def terminal(self, identity: str, command: list[str], *, tty: bool) -> AsyncIterator[RunningTerminal]:
        raise self._refused("terminal")
        yield

    def _refused(self, event: str) -> Exception:
        structlog.get_logger().info(event)
        return self.error


def refusing(error: Exception) -> ContainerRuntime:
    """Return the runtime of an agent that refuses everything."""
    node = Refusing(error)

    def node_info() -> NodeInfo:
        return NodeInfo(name="worker1", agent_version="0.1.0", engine_version="", os="", cpu_milli=1, memory_mib=1)

    return ContainerRuntime(
        node_info=node_info,
        containers=node,
        images=node,
        terminal=node.terminal,
        volumes=VolumeFolders([], Storages({}, {})),
        begin=lambda: None,
        tasks={},
        is_stuck=lambda: False,
        close=lambda: None,
    )
