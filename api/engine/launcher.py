"""The interface of launchers: who lends the places that the scheduler has chosen, and takes them back.

The scheduler decides which session runs where. A launcher is asked before containers are started there, is told when
they are gone, and says what has been taken back meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from common.checks import Check
from common.errors import ConflictError
from common.lease_protocol import Lease


@dataclass(frozen=True, order=True)
class LeasedNode:
    """What a session takes of a node with all its containers there: thousandths of a GPU, whole cores, and MiB."""

    node: str
    gpu_milli: int
    cores: int
    memory_mib: int


@dataclass(frozen=True)
class Held:
    """What is taken of a node, by whomever: thousandths of a core, and MiB."""

    cpu_milli: int = 0
    memory_mib: int = 0


@dataclass(frozen=True)
class Leases:
    """What a launcher knows: leases that are lent or asked for, and why others have ended.

    A lease that is in neither was never asked for, or the launcher has forgotten it. Those that are `left` have ended
    and still hold something. `nodes` are those that it knows, with the reason where one lends nothing more, and
    `unknown` is why others lend nothing. `held` is what is taken of each, by leases and by jobs of others.
    """

    lent: Collection[Lease] = ()
    ended: Mapping[Lease, str] = field(default_factory=dict)
    left: Collection[Lease] = ()
    nodes: Mapping[str, str] = field(default_factory=dict)
    unknown: str = ""
    held: Mapping[str, Held] = field(default_factory=dict)

    def withheld(self, names: Iterable[str]) -> dict[str, str]:
        """Return why nodes lend nothing, of those that the launcher knows and of ours with these names."""
        others = {name: self.unknown for name in names if name not in self.nodes}
        return others | {name: why for name, why in self.nodes.items() if why}


class NotLentError(ConflictError):
    """The places of a lease cannot be had; the session waits for its turn again."""


class Launcher(Protocol):
    """What lends places. Every call is idempotent by the lease."""

    is_watched: bool
    """Whether places can be taken back, so that somebody has to look."""

    async def admit(self, lease: Lease, places: Sequence[LeasedNode]) -> None:
        """Return when the places are lent.

        Raises NotLentError where they are not within some seconds, or have been taken back, and UnavailableError where
        nobody can say.
        """

    async def release(self, leases: Collection[Lease]) -> Mapping[Lease, str]:
        """Give the places back, and return why those were taken back that had been before.

        What cannot be given back now is found by `watch` as lent to nobody.
        """

    async def watch(self) -> Leases:
        """Return what is lent now. Raises UnavailableError where nobody can say."""

    async def checks(self) -> list[Check]:
        """Return how what it needs is, for who looks after the site."""


class DirectLauncher:
    """Lends at once and takes nothing back: all that the site has is ours."""

    is_watched = False

    async def admit(self, lease: Lease, places: Sequence[LeasedNode]) -> None:
        """Lend."""

    async def release(self, leases: Collection[Lease]) -> Mapping[Lease, str]:
        """Return nothing: no place is taken back here."""
        return {}

    async def watch(self) -> Leases:
        """Return nothing: nobody looks."""
        return Leases()

    async def checks(self) -> list[Check]:
        """Return nothing: it needs nothing."""
        return []
