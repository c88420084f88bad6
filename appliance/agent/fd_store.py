"""Descriptors that systemd keeps while the agent is started again, by the protocol of sd_notify(3).

systemd hands what it keeps to the next process of the service, under the names that it was kept by. It lets go of all
when the service is stopped.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence

import structlog

log = structlog.get_logger()

FIRST = 3
"""The number of the first descriptor that systemd hands over."""


def handed_over(pid: int, count: int, names: str) -> dict[str, list[int]]:
    """Return what systemd hands to the process `pid`, by its names; nothing where that is another process than this."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    if pid == os.getpid():
        for position, name in zip(range(count), names.split(":"), strict=False):
            os.set_inheritable(FIRST + position, False)
            found[name].append(FIRST + position)
    return found


class FdStore:
    """What systemd keeps for this service; it keeps nothing where it does not run it."""

    def __init__(self, address: str = "", kept: Mapping[str, Sequence[int]] | None = None) -> None:
        """Take up what was `kept` by names; systemd listens at `address`, empty where it does not."""
        self.kept = dict(kept or {})
        self._address = address

    def keep(self, name: str, descriptors: Sequence[int]) -> None:
        """Let systemd keep copies of open descriptors; what it does not take stands in the log."""
        self._tell(f"FDSTORE=1\nFDNAME={name}", descriptors)

    def forget(self, name: str) -> None:
        """Let systemd drop what it keeps by a name."""
        self._tell(f"FDSTOREREMOVE=1\nFDNAME={name}", ())

    def _tell(self, message: str, descriptors: Sequence[int]) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.connect(address)
                socket.send_fds(channel, [message.encode()], list(descriptors))
        except OSError as error:
            log.warning("systemd keeps no descriptors", reason=str(error))
