"""The network interfaces of a node as its agent tells them."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import AfterValidator, Field

from common.messages import Report
from common.rdma import Word

MAX_INTERFACES = 64
"""Most interfaces of a node."""
MAX_ADDRESSES = 16
"""Most addresses of one of them."""
MAX_NAME = 15
"""Most characters of its name, as the kernel has it."""


def _of_networks(addresses: list[IPv4Address]) -> list[IPv4Address]:
    """Return those by which other machines may call this one."""
    return [
        each
        for each in addresses
        if not (each.is_loopback or each.is_unspecified or each.is_multicast or each.is_link_local or each.is_reserved)
    ]


Addresses = Annotated[list[IPv4Address], Field(max_length=MAX_ADDRESSES), AfterValidator(_of_networks)]


class Interface(Report):
    """A network interface by its `name`, with its IPv4 `addresses`; those are left out by which nobody else calls it.

    `up` says whether it carries data. `speed_mbps` is in Mbit/s, None where the kernel does not know it; `mtu` is how
    many bytes a packet has at most.
    """

    name: Word
    addresses: Addresses = Field(default_factory=list)
    up: bool = False
    speed_mbps: int | None = Field(default=None, ge=0)
    mtu: int = Field(default=0, ge=0)
