"""Containers of this node as its agent knows them, and what follows where the state of one changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import structlog

from appliance.agent.docker import inspections
from appliance.agent.docker.blocking_calls import in_thread
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.known_container import KnownContainer
from appliance.agent.docker.leases import MissingLeaseError
from appliance.agent.docker.lifecycle import Lifecycle
from appliance.agent.docker.log_heads import LogHeads
from appliance.agent.docker.rdma import MissingRdmaError
from appliance.agent.port_forwarding import PortForwarder
from appliance.agent.shares.share_manager import ShareManager
from appliance.agent.storages import MissingStorageError
from appliance.agent.supervision import Background
from common.errors import PenstockError
from common.lease_protocol import LEASE_ENDED
from common.nccl import NcclEvidence
from common.protocol import ContainerState, ContainerStatus

log = structlog.get_logger()


class KnownContainers(Mapping[str, KnownContainer]):
    """Containers by their ids, oldest first. `changed` is set whenever one of them changes."""

    def __init__(
        self,
        engine: DockerEngine,
        forwarder: PortForwarder,
        shares: ShareManager,
        lifecycle: Lifecycle,
        background: Background,
    ) -> None:
        """Start with nothing known."""
        self.changed = asyncio.Event()
        self._known: dict[str, KnownContainer] = {}
        self._engine = engine
        self._forwarder = forwarder
        self._shares = shares
        self._lifecycle = lifecycle
        self._background = background
        self._log_heads = LogHeads(lambda identity: engine.logs(identity, follow=True, tail=None), self._note_nccl)

    def __getitem__(self, identity: str) -> KnownContainer:
        """Return the container with an id."""
        return self._known[identity]

    def __iter__(self) -> Iterator[str]:
        """Return the ids."""
        return iter(self._known)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._known)

    def add(self, identity: str, known: KnownContainer) -> KnownContainer:
        """Know one more container, and return it."""
        self._known[identity] = known
        return known

    def is_live(self, identity: str) -> bool:
        """Return whether a container is known that has not ended."""
        known = self._known.get(identity)
        return known is not None and not known.state.status.is_final

    def is_to_start(self, identity: str) -> bool:
        """Return whether a container is known that has not been started."""
        known = self._known.get(identity)
        return known is not None and (known.launching or known.state.status is ContainerStatus.CREATING)

    def set(self, known: KnownContainer, state: ContainerState) -> None:
        """Take in the state of a container, and let go of what it holds where it has ended."""
        if known.collective and state.status is ContainerStatus.RUNNING:
            self._log_heads.follow(state.id)
        state = self._shares.dress(known.dress(state))
        if state.status.is_final and known.end_reason:
            lost = known.end_reason == LEASE_ENDED
            told = {"status": ContainerStatus.FAILED, "error": known.end_reason, "lost": lost}
            state = state.model_copy(update=told)
        # a container never runs again, so news that overtook each other are told apart by what is final
        if not known.state.status.is_final and state != known.state:
            known.state = state
            self.changed.set()
            if state.status.is_final:
                if known.offered:
                    self._background.begin(self._forwarder.close(state.id))
                if state.gpus:
                    self._background.begin(self.release(state.id))

    def see(self, known: KnownContainer, state: ContainerState) -> None:
        """Take in a state that Docker has just told; an end when the log is read, which holds up no other container."""
        if self._has_to_be_read(known, state):
            self._background.begin(self._end_when_read(known, state))
        else:
            self.set(known, known.seen(state))

    def fail(self, known: KnownContainer, error: PenstockError) -> None:
        """Note that a container failed before it ran."""
        known.launching, known.nowhere = False, True
        log.warning("container failed", id=known.state.id, reason=str(error))
        lost = isinstance(error, (MissingStorageError, MissingRdmaError, MissingLeaseError))
        failed = {"status": ContainerStatus.FAILED, "error": str(error), "lost": lost}
        self.set(known, known.state.model_copy(update=failed))

    async def offer(self, known: KnownContainer, state: ContainerState | None = None) -> None:
        """Open the ports of a running container to the edge; one that cannot be opened is said in its state."""
        state = state or known.state
        if not known.ports or known.offered is not None or state.status is not ContainerStatus.RUNNING:
            return
        try:
            inspection = await in_thread(self._engine.inspect, state.id)
            known.offered = await self._forwarder.open(state.id, inspections.address_of(inspection), known.ports)
            known.closed = ""
        except PenstockError as refused:
            known.closed = str(refused)
            log.warning("ports of a session stay closed", id=state.id, reason=known.closed)
        self.set(known, state)

    async def read_to_its_end(self, known: KnownContainer, state: ContainerState) -> None:
        """Read the head of the log of a container that has ended: whoever learns of that learns what its log told."""
        if self._has_to_be_read(known, state):
            self._log_heads.follow(state.id)
            await self._log_heads.finish(state.id)

    async def release(self, identity: str) -> None:
        """Let go of the shares of a container that has ended, and use them anew."""
        await self._lifecycle.release(identity)
        await self.switch_kinds()

    async def switch_kinds(self) -> None:
        """Switch to the chosen kinds of enforcement where no living container is held by another."""
        if self._shares.switch_kinds([identity for identity in self._known if self.is_live(identity)]):
            self.changed.set()
            await in_thread(self._shares.tidy)

    def drop(self, identity: str) -> bool:
        """Know nothing more of a container whose ports are closed; return whether it was known."""
        self._log_heads.forget(identity)
        return self._known.pop(identity, None) is not None

    def forget(self, identity: str) -> None:
        """Know nothing more of a container, and close its ports."""
        if self.drop(identity):
            self._background.begin(self._forwarder.close(identity))

    async def close(self) -> None:
        """Read no more logs."""
        await self._log_heads.close()

    async def _end_when_read(self, known: KnownContainer, state: ContainerState) -> None:
        await self.read_to_its_end(known, state)
        # a removal may have come in between
        if self._known.get(state.id) is known:
            self.set(known, known.seen(state))

    def _has_to_be_read(self, known: KnownContainer, state: ContainerState) -> bool:
        return known.collective and state.status.is_final and self._known.get(state.id) is known

    def _note_nccl(self, identity: str, evidence: NcclEvidence) -> None:
        if known := self.get(identity):
            known.nccl = evidence
            self.set(known, known.state)
