"""Journal of systemd: entries with fields of their own, in its native protocol, which it finds again by an index.

The protocol is that of https://systemd.io/JOURNAL_NATIVE_PROTOCOL: one datagram an entry, and a sealed file in memory
for one that no datagram holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress

ADDRESS = "/run/systemd/journal/socket"
TIMEOUT_S = 1.0
"""So long a writer waits for a journal that takes nothing: once, until it takes something again."""
_TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

Fields = Iterable[tuple[str, str]]
"""Names and values of an entry; a name may have several."""


def takes(stream: str, descriptor: int) -> bool:
    """Return whether what is written to a descriptor goes to the journal; `stream` is systemd's `JOURNAL_STREAM`."""
    with suppress(OSError, ValueError):
        device, inode = (int(number) for number in stream.split(":"))
        status = os.fstat(descriptor)
        return (status.st_dev, status.st_ino) == (device, inode)
    return False


class HungError(OSError):
    """The journal is there and takes nothing."""


class Journal:
    """A writer of entries."""

    def __init__(self, address: str = ADDRESS) -> None:
        """Write to the journal at `address`, whether it is there already or not."""
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(TIMEOUT_S)

    def write(self, fields: Fields) -> None:
        """Write an entry; raises HungError where the journal takes none for now, OSError where there is none."""
        try:
            self._write(b"".join(_encoded(name, value) for name, value in fields))
        except (TimeoutError, BlockingIOError) as error:
            self._socket.setblocking(False)
            raise HungError(str(error)) from error
        self._socket.settimeout(TIMEOUT_S)

    def _write(self, entry: bytes) -> None:
        try:
            self._socket.sendto(entry, self._address)
        except OSError as error:
            if error.errno not in _TOO_LARGE:
                raise
            self._write_large(entry)

    def _write_large(self, entry: bytes) -> None:
        descriptor = os.memfd_create("journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(entry)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            # not `send_fds`, which forgets the address
            held = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
            self._socket.sendmsg([b""], held, 0, self._address)
        finally:
            os.close(descriptor)


def _encoded(name: str, value: str) -> bytes:
    """Return a field: as a line, or with its length before it where it has line ends of its own."""
    data = value.encode(errors="backslashreplace")
    if b"\n" not in data:
        return b"%s=%s\n" % (name.encode(), data)
    return b"%s\n%s%s\n" % (name.encode(), struct.pack("<Q", len(data)), data)
