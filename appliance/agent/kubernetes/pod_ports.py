"""Ports of pods, offered to the site's edge as those of containers are: by the agent, which reaches the pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import structlog

from appliance.agent.kubernetes import pods
from appliance.agent.kubernetes.capacity import Object
from common.protocol import ContainerState, ContainerStatus

log = structlog.get_logger()


class PortForwarder(Protocol):
    """Offers ports of addresses to the edge."""

    async def open(self, identity: str, address: str, ports: Sequence[int]) -> dict[int, int]:
        """Offer ports; return which port of ours leads to which of them. Raises UnavailableError."""

    async def close(self, identity: str) -> None:
        """Close what is open for a container."""

    async def close_all(self) -> None:
        """Close everything."""


class PodPorts:
    """What is open for each pod, and why the rest is closed."""

    def __init__(self, forwarder: PortForwarder) -> None:
        """Start with nothing open."""
        self._forwarder = forwarder
        self._open: dict[str, dict[int, int]] = {}
        self._closed: dict[str, str] = {}

    async def follow(self, own: Iterable[Object]) -> None:
        """Open the ports of pods that run, and close those of pods that do no longer."""
        running = dict(_offered(own))
        for identity in set(self._open) - set(running):
            del self._open[identity]
            await self._forwarder.close(identity)
        self._closed = {identity: why for identity, why in self._closed.items() if identity in running}
        for identity, (address, ports) in running.items():
            if identity not in self._open:
                await self._offer(identity, address, ports)

    def dress(self, state: ContainerState) -> ContainerState:
        """Return the state of a container with its ports, or with why they are closed."""
        if state.status is not ContainerStatus.RUNNING:
            return state
        ports, closed = self._open.get(state.id, {}), self._closed.get(state.id, "")
        return state.model_copy(update={"ports": ports, "error": state.error or closed})

    async def close(self) -> None:
        """Close everything."""
        await self._forwarder.close_all()

    async def _offer(self, identity: str, address: str, ports: Sequence[int]) -> None:
        try:
            self._open[identity] = await self._forwarder.open(identity, address, ports)
            self._closed.pop(identity, None)
        except Exception as refused:
            # whatever it was: the ports of others open all the same, and these are tried again
            if identity not in self._closed:
                log.warning("ports of a session stay closed", id=identity, reason=str(refused))
            self._closed[identity] = str(refused)


def _offered(own: Iterable[Object]) -> Iterator[tuple[str, tuple[str, Sequence[int]]]]:
    """Yield address and ports of each pod that runs and offers some, by its id."""
    for pod in own:
        try:
            address, ports = pods.address_of(pod), pods.ports_of(pod)
        except pods.UNREADABLE:
            # its state says so
            continue
        if address and ports:
            yield pods.id_of(pod), (address, ports)
