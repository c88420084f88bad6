"""File descriptors of the agent: so many that what others open never takes those of heartbeats and Docker."""

from __future__ import annotations

import resource

RESERVED = 768
"""For strangers at the listeners, calls of the API, Docker, heartbeats, files, and the interpreter."""


def raise_limit() -> int:
    """Let this process open as many as it may ever, and return how many that is."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def for_ports(most: int) -> int:
    """Return how many connections to ports of sessions there may be, of which each takes two descriptors."""
    return max((most - RESERVED) // 2, 1)
