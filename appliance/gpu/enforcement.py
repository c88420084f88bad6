"""Kinds of enforcement: what every one offers, and the choice among them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.gpu.devices import DeviceShare, Needs
from common.gpu.kinds import Enforcement
from common.protocol import GpuDevice


@dataclass(frozen=True)
class Probe:
    """Whether a kind of enforcement can hold shares of some devices of this node, and why not or by what."""

    available: bool
    reason: str


@dataclass(frozen=True)
class Choice:
    """The kind that was chosen, None where none can hold shares, and what was found of each kind that was tried."""

    kind: Enforcement | None
    probes: Mapping[Enforcement, Probe]


class Enforcer(Protocol):
    """One kind of enforcement. Every call may block; all that fails raises PenstockError.

    A container passes `check`, `prepare` and `needs` before it is made, `fence` with the container engine's id of it
    before it starts where `fences` says so, and `apply` once it runs, with the id of its first process; `apply` comes
    again after a change of its shares and after a restart of the agent. `detach` comes where `detaches` says so, before
    its processes are killed. `remove` comes last, and again for what is gone already.
    """

    kind: Enforcement
    fences: bool
    detaches: bool

    def probe(self, devices: Sequence[GpuDevice]) -> Probe:
        """Return whether this kind can hold shares of the devices."""

    def check(self, shares: Sequence[DeviceShare]) -> None:
        """Refuse shares that a container cannot have by this kind; raises InputError."""

    def check_change(self, shares: Sequence[DeviceShare]) -> None:
        """Refuse other shares for a container that runs, where this kind cannot; raises InputError."""

    def prepare(self, container: str, shares: Sequence[DeviceShare]) -> None:
        """Make what the container will find."""

    def needs(self, container: str, shares: Sequence[DeviceShare]) -> Needs:
        """Return what the container needs of the node."""

    def fence(self, container: str, shares: Sequence[DeviceShare], engine_id: str) -> None:
        """Hold the shares of a container before any process of it runs."""

    def apply(self, container: str, shares: Sequence[DeviceShare], pid: int) -> None:
        """Hold the shares of a running container to their limits."""

    def detach(self, shares: Sequence[DeviceShare], engine_id: str) -> None:
        """Take their GPUs from the processes of a container, so that their end hurts nobody."""

    def remove(self, container: str) -> None:
        """Drop what was made for a container that has gone."""


class AccountedOnly:
    """A kind that leaves the limits to others: `none` to nobody, `mig` to the hardware. Base of the other kinds too."""

    fences = False
    detaches = False

    def __init__(self, kind: Enforcement = Enforcement.NONE) -> None:
        """Account for shares of this kind."""
        self.kind = kind

    def probe(self, devices: Sequence[GpuDevice]) -> Probe:
        """It is always available."""
        return Probe(True, "shares are accounted for")

    def check(self, shares: Sequence[DeviceShare]) -> None:
        """Every share can be accounted for."""

    def check_change(self, shares: Sequence[DeviceShare]) -> None:
        """Every change can be accounted for."""

    def prepare(self, container: str, shares: Sequence[DeviceShare]) -> None:
        """Nothing is made."""

    def needs(self, container: str, shares: Sequence[DeviceShare]) -> Needs:
        """Nothing is needed."""
        return Needs()

    def fence(self, container: str, shares: Sequence[DeviceShare], engine_id: str) -> None:
        """Nothing is set."""

    def apply(self, container: str, shares: Sequence[DeviceShare], pid: int) -> None:
        """Nothing is set."""

    def detach(self, shares: Sequence[DeviceShare], engine_id: str) -> None:
        """Nobody hangs on the end of others."""

    def remove(self, container: str) -> None:
        """Nothing is left."""


def choose(
    order: Iterable[Enforcement],
    enforcers: Mapping[Enforcement, Enforcer],
    devices: Sequence[GpuDevice],
    able: Collection[Enforcement],
) -> Choice:
    """Return the first kind of `order` that can hold shares of the devices; `able` are kinds that these know at all.

    Kinds behind the chosen one are not asked.
    """
    probes: dict[Enforcement, Probe] = {}
    for kind in order:
        if kind is Enforcement.MIG:
            probes[kind] = Probe(False, "these GPUs are not cut into MIG devices")
        elif kind not in able:
            probes[kind] = Probe(False, "not for accelerators of this kind")
        else:
            probes[kind] = enforcers[kind].probe(devices)
        if probes[kind].available:
            return Choice(kind, probes)
    return Choice(None, probes)
