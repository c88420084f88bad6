"""Networks between the containers of a session on this node: made, joined by containers, taken down.

Docker and the kernel are the only memory: whatever is not wanted by a container that is known is taken down.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import structlog

from appliance.agent.docker import gang_network
from appliance.agent.docker.gang_network import Command
from common import process
from common.errors import ConflictError, PenstockError
from common.protocol import USUAL_MTU, VXLAN_OVERHEAD, GangNetwork

log = structlog.get_logger()


class Networks(Protocol):
    """What is asked of Docker."""

    def networks(self) -> dict[int, Mapping[str, Any]]:
        """Return the inspections of all our networks, by their numbers."""

    def make_network(self, arguments: Mapping[str, Any]) -> None:
        """Make a network."""

    def remove_network(self, name: str) -> None:
        """Remove a network; no error where there is none."""

    def connect(self, identity: str, name: str, address: str) -> None:
        """Give a container that does not run yet its address on a network; no error where it has it."""


class GangNetworkManager:
    """All such networks of this node; every call may block."""

    def __init__(
        self, networks: Networks, local: str, run: Callable[[Command], str] = process.run, *, mtu: int | None = None
    ) -> None:
        """Start with none known; `local` is from where this node sends to others, unless a network says another one.

        `mtu` is the size of packets that the site wants, where so much fits.
        """
        self._mtu_wanted = mtu
        self._networks = networks
        self._local = local
        self._run = run
        self._members: dict[str, GangNetwork] = {}
        self._lock = threading.Lock()

    def join(self, identity: str, network: GangNetwork | None) -> None:
        """Put a container that does not run yet on its network, if it has one; the network is made where it is missing.

        Raises ConflictError where containers of another session are on a network of that number, ProcessError or
        UnavailableError where the kernel or Docker refuses.
        """
        if network is None:
            return
        with self._lock:
            self._check_free(network)
            self._members[identity] = network
            self._ensure(network)
            self._networks.connect(identity, gang_network.name_of(network.number), str(network.address))

    def leave(self, identity: str) -> None:
        """Forget a container that is gone; after the last one of this node its network is taken down."""
        with self._lock:
            network = self._members.pop(identity, None)
            if network and network.number not in self._wanted():
                self._sweep()

    def recover(self, found: Mapping[str, GangNetwork], is_known: Callable[[str], bool]) -> None:
        """Learn of the networks of the containers that Docker has, by the ids of these; take down what others left
        behind, and mend each of the rest.

        A container that only is known is on its way to Docker.
        """
        with self._lock:
            # one that has been removed since Docker told of it would keep its network for ever
            members = {**self._members, **found}
            self._members = {identity: network for identity, network in members.items() if is_known(identity)}
            _alone(self._sweep)
            for network in self._wanted().values():
                _alone(partial(self._ensure, network))

    def _check_free(self, network: GangNetwork) -> None:
        """Refuse a number that containers of another session have here, such as of one whose launch came late."""
        others = (other for other in self._members.values() if other.number == network.number)
        if any(other.hosts != network.hosts for other in others):
            raise ConflictError(
                f"containers of another session are on network {network.number}",
                where="network",
                hint="remove them first",
            )

    def _wanted(self) -> dict[int, GangNetwork]:
        return {network.number: network for network in self._members.values()}

    def _sweep(self) -> None:
        """Take down every network that nobody is on; what cannot be taken down now is tried again the next time."""
        try:
            found, linked = self._networks.networks(), gang_network.links(self._links())
            for number in sorted((found.keys() | linked) - self._wanted().keys()):
                self._take_down(number, is_linked=number in linked)
        except PenstockError as error:
            log.warning("networks of sessions that have ended are left", reason=str(error))

    def _ensure(self, network: GangNetwork) -> None:
        found = self._networks.networks().get(network.number)
        if found is not None and gang_network.subnets_of(found) != [str(network.subnet)]:
            # of a session before, for what is wanted has its subnet by its number
            self._take_down(network.number, is_linked=network.number in gang_network.links(self._links()))
            found = None
        if found is None:
            self._networks.make_network(gang_network.creation(network, self._mtu(network)))
        if network.peers:
            self._reach(network, self._mtu(network) if found is None else gang_network.mtu_of(found))

    def _reach(self, network: GangNetwork, mtu: int) -> None:
        """Let the bridge reach the other nodes."""
        shown, local = self._links(), network.local or self._local
        if not gang_network.is_linked(shown, network, local):
            if network.local:
                self._check_own(network.local)
            if network.number in gang_network.links(shown):
                self._run(("ip", "link", "del", gang_network.link_of(network.number)))
            for command in gang_network.link(network, local, mtu):
                self._run(command)
        entries = json.loads(self._run(("bridge", "-j", "fdb", "show", "dev", gang_network.link_of(network.number))))
        for command in gang_network.fdb_changes(network, entries):
            self._run(command)

    def _check_own(self, address: str) -> None:
        """Refuse to send from an address that this node has lost since it was chosen: the kernel would not."""
        shown = json.loads(self._run(("ip", "-j", "address", "show", "to", address)) or "[]")
        if not any(told for each in shown for told in each.get("addr_info", ())):
            raise ConflictError(
                f"{address} is no address of this node any more",
                where="network.local",
                hint="give it back to the interface, or choose another one for the node, and start the session again",
            )

    def _mtu(self, network: GangNetwork) -> int:
        """Return how many bytes a packet has at most: as wanted, where so many fit on the way to every other node."""
        if network.local and network.peers:
            self._check_own(network.local)
        # from another address of the node the way may be another one
        source = ("from", network.local) if network.local else ()
        ways = [json.loads(self._run(("ip", "-j", "route", "get", peer, *source))) for peer in network.peers]
        devices = {way[0]["dev"] for way in ways}
        sizes: list[int] = [
            json.loads(self._run(("ip", "-j", "link", "show", "dev", device)))[0]["mtu"] for device in devices
        ]
        if not sizes:
            return self._mtu_wanted or USUAL_MTU
        fits = min(sizes) - VXLAN_OVERHEAD
        return min(self._mtu_wanted or fits, fits)

    def _links(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._run(("ip", "-j", "-d", "link", "show", "type", "vxlan")) or "[]")
        return found

    def _take_down(self, number: int, *, is_linked: bool) -> None:
        if is_linked:
            self._run(("ip", "link", "del", gang_network.link_of(number)))
        try:
            self._networks.remove_network(gang_network.name_of(number))
        except ConflictError as error:
            log.warning("a network is still in use", network=gang_network.name_of(number), reason=str(error))


def _alone(step: Callable[[], None]) -> None:
    """Do a step whose failure keeps nothing else from being done."""
    try:
        step()
    except PenstockError as error:
        log.warning("networks between containers are not as they must be", reason=str(error))
    except Exception as error:
        # whatever it was: the agent comes up, and the other networks are mended
        log.exception("networks between containers are not as they must be", reason=str(error))
