"""The range of addresses of which each session with several containers gets a part of its own. Pure."""

from __future__ import annotations

from ipaddress import IPv4Network

PREFIX = 27
"""Bits of the network of one session: it has room for its containers, and addresses that nobody has."""
PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
"""Ranges that nobody on the internet has."""
DEFAULT = IPv4Network("100.96.0.0/12")


def check(site: IPv4Network) -> IPv4Network:
    """Return a site's range; raises ValueError where it is not private or has no room for one session."""
    if not any(site.subnet_of(private) for private in PRIVATE):
        raise ValueError(f"{site} is not private; choose a range inside {', '.join(map(str, PRIVATE))}")
    if site.prefixlen > PREFIX:
        raise ValueError(f"{site} is too small; the containers of one session take a /{PREFIX}")
    return site


def capacity(site: IPv4Network) -> int:
    """Return how many sessions of several containers can run at once with a site's range."""
    return 1 << (PREFIX - site.prefixlen)
