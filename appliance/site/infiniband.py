"""InfiniBand of a node as the site file says it: the interface that bears its `ib_address`, and who manages the subnet.

Pure: no file, no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal, Protocol

from pydantic import Field

from common.places import Path
from common.strict import StrictModel

MAX_MTU = {"datagram": 4092, "connected": 65520}
"""The largest packets of IP over InfiniBand, by its mode (the kernel's Documentation/infiniband/ipoib.rst)."""
USUAL_MTU = {"datagram": 2044, "connected": 65520}
"""What every subnet carries without a partition of its own for larger packets."""
MIN_MTU = 576

Finding = tuple[Path, str, str]


class InfiniBand(StrictModel):
    """How the `ib_address` of a node comes onto its `interface`, and whether it runs a `subnet_manager`.

    `mtu` absent is what `mode` carries on every subnet.
    """

    interface: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,14}$")] = "ib0"
    prefix: int = Field(default=24, ge=8, le=30)
    mode: Literal["datagram", "connected"] = "datagram"
    mtu: int | None = Field(default=None, ge=MIN_MTU)
    subnet_manager: bool = False

    @property
    def carries(self) -> int:
        """The largest packets of the interface, in bytes."""
        return self.mtu or USUAL_MTU[self.mode]


class _Node(Protocol):
    """What is asked of a node of the site."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> IPv4Address: ...
    @property
    def ib_address(self) -> IPv4Address | None: ...
    @property
    def infiniband(self) -> InfiniBand | None: ...
    @property
    def kubernetes(self) -> object: ...


def findings(nodes: Sequence[_Node]) -> Iterator[Finding]:
    """Yield what does not fit together in the InfiniBand of all nodes: where, what is wrong, and the hint."""
    found = [(index, node, node.infiniband) for index, node in enumerate(nodes) if node.infiniband]
    first: tuple[str, IPv4Network, int] | None = None
    for index, node, infiniband in found:
        path: Path = ("nodes", index, "infiniband")
        if node.kubernetes:
            yield (
                path,
                f"{node.name} stands for a cluster, whose machines the site does not set up",
                "remove infiniband",
            )
        elif node.ib_address is None:
            yield path, f"{node.name} has no ib_address that its interface could bear", "add its ib_address"
        else:
            network = IPv4Network((node.ib_address, infiniband.prefix), strict=False)
            first = first or (node.name, network, infiniband.carries)
            yield from _alone(node.ib_address, infiniband, network, path)
            yield from _beside(network, infiniband, first, path)
            yield from _apart(network, nodes, path)


def _alone(address: IPv4Address, infiniband: InfiniBand, network: IPv4Network, path: Path) -> Iterator[Finding]:
    if address in (network.network_address, network.broadcast_address):
        yield (*path, "prefix"), f"{address} is no address of a node in {network}", "correct prefix or ib_address"
    if infiniband.carries > (most := MAX_MTU[infiniband.mode]):
        hint = f"write {most} or less" + (", or `mode: connected`" if infiniband.mode == "datagram" else "")
        yield (*path, "mtu"), f"{infiniband.mode} carries packets of {most} bytes at most", hint


def _beside(
    network: IPv4Network, infiniband: InfiniBand, first: tuple[str, IPv4Network, int], path: Path
) -> Iterator[Finding]:
    name, other, carries = first
    if network != other:
        yield (*path, "prefix"), f"{network} is another network than {other} of {name}", "give all nodes one network"
    elif infiniband.carries != carries:
        reason = f"packets of {infiniband.carries} bytes do not reach {name}, which takes {carries}"
        yield (*path, "mtu"), reason, "give all nodes one mode and mtu"


def _apart(network: IPv4Network, nodes: Sequence[_Node], path: Path) -> Iterator[Finding]:
    inside = next((node for node in nodes if node.address in network), None)
    if inside is not None:
        reason = f"{network} of InfiniBand has the address {inside.address} of {inside.name}, too"
        yield (*path, "prefix"), reason, "give InfiniBand a network of its own"
