"""The kernel's side of a sandbox: takes a denied system call, and answers it. Nothing here blocks for long.

The layouts are those of `struct seccomp_notif` and `seccomp_notif_resp`, which the kernel only ever makes longer; so it
is asked how long they are.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from dataclasses import dataclass
from functools import cache

from common.errors import UnavailableError

_SECCOMP = 317 if os.uname().machine == "x86_64" else 277
_GET_NOTIF_SIZES = 3
_NOTIFICATION = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<QqiI")
_READ, _WRITE = 2, 1
_MAGIC = ord("!")


@dataclass(frozen=True)
class Call:
    """A system call that waits for its answer; `thread` is who made it, by its id on this node."""

    token: int
    thread: int
    number: int
    architecture: int
    arguments: tuple[int, ...]


def receive(descriptor: int) -> Call | None:
    """Return the next call; None where its process has ended meanwhile. Raises OSError."""
    size, _ = _sizes()
    buffer = bytearray(size)
    try:
        fcntl.ioctl(descriptor, _request(_READ | _WRITE, size, 0), buffer, True)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    token, thread, _, number, architecture, _, *arguments = _NOTIFICATION.unpack_from(buffer)
    return Call(token, thread, number, architecture, tuple(arguments))


def is_waiting(descriptor: int, call: Call) -> bool:
    """Return whether the call still waits, so that its `thread` is what it was when the call came."""
    try:
        fcntl.ioctl(descriptor, _request(_WRITE, 8, 2), struct.pack("<Q", call.token))
    except OSError:
        return False
    return True


def refuse(descriptor: int, call: Call, number: int) -> None:
    """Let a call end with the errno `number`; nothing happens where its process has ended meanwhile. Raises OSError."""
    _, size = _sizes()
    answer = bytearray(size)
    _ANSWER.pack_into(answer, 0, call.token, 0, -number, 0)
    try:
        fcntl.ioctl(descriptor, _request(_READ | _WRITE, size, 1), answer, True)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def _request(direction: int, size: int, number: int) -> int:
    return direction << 30 | size << 16 | _MAGIC << 8 | number


@cache
def _sizes() -> tuple[int, int]:
    sizes = (ctypes.c_uint16 * 3)()
    if ctypes.CDLL(None, use_errno=True).syscall(_SECCOMP, _GET_NOTIF_SIZES, 0, sizes):
        raise UnavailableError(
            f"the kernel tells nobody of denied system calls: {os.strerror(ctypes.get_errno())}",
            where="kernel",
            hint="use a kernel of 5.0 or newer, with CONFIG_SECCOMP_FILTER",
        )
    return max(sizes[0], _NOTIFICATION.size), max(sizes[1], _ANSWER.size)
