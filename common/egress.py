"""Destinations that sessions may reach beyond their own containers: `10.1.2.3:443`, `10.1.0.0/16:53/udp`.

Pure. A destination is an address or a range of IPv4, with a port or a range of ports, or with none for all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated

from pydantic import AfterValidator, Field

_WRITTEN = re.compile(r"(?P<to>[0-9./]+)(:(?P<first>[0-9]+)(-(?P<last>[0-9]+))?(/(?P<protocol>tcp|udp))?)?")
_NEVER = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))
"""This machine, the link, groups, and what is no address: no destination lies there."""


@dataclass(frozen=True)
class Destination:
    """Where sessions may connect to; without `ports` (first and last) by every protocol and to every port."""

    network: IPv4Network
    ports: tuple[int, int] | None = None
    protocol: str = "tcp"

    @property
    def is_address(self) -> bool:
        """Return whether it is one address, and not a range."""
        return self.network.prefixlen == self.network.max_prefixlen


def parse(text: str) -> Destination:
    """Return what a text says; raises ValueError that says what is wrong with it."""
    if not (words := _WRITTEN.fullmatch(text)):
        raise ValueError(f"{text} is no destination; write ADDRESS[/BITS][:PORT[-PORT][/udp]], such as 10.1.2.3:443")
    try:
        network = IPv4Network(words["to"])
    except ValueError as error:
        raise ValueError(f"{words['to']} is no address or range of IPv4: {error}") from None
    if any(network.subnet_of(never) for never in _NEVER):
        raise ValueError(f"{network} is no place of its own in a network")
    if words["first"] is None:
        return Destination(network)
    first, last = int(words["first"]), int(words["last"] or words["first"])
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"{text} has no ports from 1 to 65535 that rise")
    return Destination(network, (first, last), words["protocol"] or "tcp")


def _check(text: str) -> str:
    parse(text)
    return text


Egress = Annotated[str, Field(max_length=64), AfterValidator(_check)]
"""A destination in a setting, as it is written."""
