"""The way of one container through Docker: made, started, held to its shares, stopped, removed.

Starts and ends may take long, and have threads apart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from appliance.agent.docker import inspections
from appliance.agent.docker.blocking_calls import Threads, in_thread
from appliance.agent.docker.cores import CoreGrant
from appliance.agent.docker.egress_policy import EgressPolicy
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.engine_calls import EngineAwayError
from appliance.agent.docker.gang_network_manager import GangNetworkManager
from appliance.agent.docker.leases import Leases
from appliance.agent.shares.share_manager import ShareManager
from common.errors import NotFoundError, PenstockError
from common.protocol import ContainerSpec, ContainerState, ContainerStatus, GangNetwork

log = structlog.get_logger()

DETACH_S = 1.0
"""So long before they are killed programs lose their GPUs, where others hang on that."""


class Lifecycle:
    """What is done with single containers of this node."""

    def __init__(
        self,
        engine: DockerEngine,
        shares: ShareManager,
        gang_networks: GangNetworkManager,
        egress_policy: EgressPolicy,
        leases: Leases,
    ) -> None:
        """Prepare threads."""
        self._engine = engine
        self._shares = shares
        self._gang_networks = gang_networks
        self._egress_policy = egress_policy
        self._leases = leases
        self._starts = Threads()
        self._ends = Threads()

    async def create(self, spec: ContainerSpec, granted: CoreGrant) -> None:
        """Make a container with what its shares need; raises ImageMissingError, and other PenstockErrors."""
        prepared = await self._starts.call(self._shares.prepare, spec.id, spec.gpus)
        await self._starts.call(self._engine.create, spec, granted, prepared, self._leases.cgroup(spec.lease))

    async def start(self, identity: str, network: GangNetwork | None) -> ContainerState:
        """Start a container on its network, held to its shares; return its state, `failed` where that is refused."""
        try:
            self._egress_policy.check()
            await self._starts.call(self._gang_networks.join, identity, network)
            await self._starts.call(self._shares.fence, identity, self._engine.inspect)
        except EngineAwayError:
            raise
        except PenstockError as error:
            failed = {"status": ContainerStatus.FAILED, "error": str(error)}
            return (await in_thread(self._engine.state, identity)).model_copy(update=failed)
        return await self._starts.call(self._engine.start, identity)

    async def hold(self, state: ContainerState, *, new: bool) -> str:
        """Hold a running container to its GPU shares; return why a new one must not run, empty where it may."""
        if not state.gpus or state.status is not ContainerStatus.RUNNING:
            return ""
        try:
            # a container that has ended meanwhile is told by its own event
            if (process := await self._process(state.id)) and process[1]:
                await self._starts.call(self._shares.attach, state.id, *process)
                # a container that runs already may have a library that has been replaced since
                if new:
                    await self._starts.call(self._shares.verify, state.id, process[1])
        except EngineAwayError:
            raise
        except PenstockError as error:
            if not (process := await self._process(state.id)) or not process[1]:
                return ""
            if new:
                return str(error)
            log.warning("a container is not held to its shares", id=state.id, reason=str(error))
            self._shares.worry(state.id, str(error))
        return ""

    async def stop(self, identity: str, grace_s: int) -> None:
        """Stop a container, which is kept; raises PenstockError."""
        async with self._detached(identity, grace_s):
            await self._ends.call(self._engine.stop, identity, grace_s)

    async def remove(self, identity: str, grace_s: int) -> None:
        """Stop and remove a container, and let go of its shares and its network; raises PenstockError."""
        async with self._detached(identity, grace_s):
            await self._ends.call(self._engine.remove, identity, grace_s)
        await self.release(identity)
        # whoever learns that it is gone may give its network's number to another session
        await self.leave(identity)

    async def release(self, identity: str) -> None:
        """Let go of the shares of a container that has ended."""
        await self._ends.call(self._shares.release, identity)

    async def leave(self, identity: str) -> None:
        """Let go of the network of a container that is gone."""
        await self._ends.call(self._gang_networks.leave, identity)

    @asynccontextmanager
    async def _detached(self, identity: str, grace_s: int) -> AsyncIterator[None]:
        """Take their GPUs from a container's programs just before they are killed, where that would hurt others.

        Until then they can bring to an end what they do.
        """
        if not self._shares.detaches(identity):
            yield
            return
        if grace_s <= DETACH_S:
            await self._detach(identity)
            yield
            return
        task = asyncio.create_task(self._detach(identity, grace_s - DETACH_S))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _detach(self, identity: str, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        try:
            await self._ends.call(self._shares.detach, identity)
        except Exception as error:
            log.warning("a container is killed with its GPUs", id=identity, reason=str(error))

    async def _process(self, identity: str) -> tuple[str, int] | None:
        """Return Docker's id of a container and that of its first process, 0 after its end; None where it is gone."""
        try:
            return inspections.process_of(await in_thread(self._engine.inspect, identity))
        except NotFoundError:
            return None
