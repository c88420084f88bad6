"""DNS servers of containers.

On a network of their own Docker answers these itself, and asks a server on the node's loopback interface, such as a
resolver of the node's own, from the node: past the egress policy. On the bridge of all it gives them servers of the
internet where the node has none, and programs wait for these. So all are given servers beyond the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
"""Where a node's servers stand; the second one where systemd's resolver is before them."""
NOBODY = "192.0.2.1"
"""An address that nobody has (RFC 5737): without any server Docker would ask the node's."""


def of_node(files: Sequence[Path] = FILES) -> list[str]:
    """Return the node's servers that are beyond it, of the first file that has some; else one that never answers."""
    return next(filter(None, map(_servers, files)), [NOBODY])


def _servers(file: Path) -> list[str]:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return []
    return [line[1] for line in lines if line[:1] == ["nameserver"] and len(line) > 1 and _is_beyond(line[1])]


def _is_beyond(server: str) -> bool:
    try:
        address = ip_address(server)
    except ValueError:
        return False
    return not address.is_loopback and not address.is_unspecified
