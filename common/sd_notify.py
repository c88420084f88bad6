"""Messages to systemd, as in sd_notify(3): datagrams to the socket that it names."""

from __future__ import annotations

import socket


def notify(address: str, message: bytes) -> None:
    """Send a message to systemd; a name that begins with @ is an abstract one. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        channel.sendto(message, "\0" + address[1:] if address.startswith("@") else address)
