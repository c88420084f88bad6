"""The network interfaces of a node as its agent tells them."""

from __future__ import annotations

from ipaddress import IPv4Address

from pydantic import Field

from common.messages import Report
from common.rdma import Word

MAX_INTERFACES = 64
"""Most interfaces of a node."""
MAX_ADDRESSES = 16
"""Most addresses of one of them."""
MAX_NAME = 15
"""Most characters of its name, as the kernel has it."""


class Interface(Report):
    """A network interface by its `name`, with its IPv4 `addresses`.

    `up` says whether it carries data. `speed_mbps` is in Mbit/s, None where the kernel does not know it; `mtu` is how
    many bytes a packet has at most.
    """

    name: Word
    addresses: list[IPv4Address] = Field(default_factory=list, max_length=MAX_ADDRESSES)
    up: bool = False
    speed_mbps: int | None = Field(default=None, ge=0)
    mtu: int = Field(default=0, ge=0)
