"""What the library takes from the kernel, looked at before anything else: without it no account is right."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
from collections.abc import Callable

from tests.gpu.card import Card
from tests.gpu.outcomes import Figure

_F_OFD_SETLK = 37
_MADV_WIPEONFORK = 18
HELD, FREE = "held", "free"


def _in_child(look: Callable[[], bool]) -> bool:
    """Return what a forked process finds."""
    child = os.fork()
    if child == 0:
        os._exit(0 if look() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def open_file_locks(card: Card) -> list[Figure]:
    """A slot of the account belongs to a process by F_OFD_SETLK: a lock that goes with its file, not with a fork."""
    path = card.folder / "lock"
    path.write_bytes(b"\0")
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)

    def locks() -> bool:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.fcntl(file, _F_OFD_SETLK, wanted)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    first = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    fcntl.fcntl(first, _F_OFD_SETLK, wanted)
    held = not _in_child(locks)
    os.close(first)
    freed = _in_child(locks)
    return [
        Figure("beside another open file", HELD if held else FREE, wanted=HELD),
        Figure("after its file was closed", FREE if freed else HELD, wanted=FREE),
    ]


def wiped_on_fork(card: Card) -> list[Figure]:
    """A child finds nothing on a page with MADV_WIPEONFORK, and so knows that it is one."""
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page[0] = 1
    place = ctypes.addressof(ctypes.c_char.from_buffer(page))
    code = ctypes.CDLL(None).madvise(ctypes.c_void_p(place), ctypes.c_size_t(mmap.PAGESIZE), _MADV_WIPEONFORK)
    wiped = _in_child(lambda: page[0] == 0)
    return [
        Figure("madvise answers", code, wanted=0),
        Figure("a child finds", "nothing" if wiped else "the parent's byte", wanted="nothing"),
        Figure("the parent keeps", page[0], wanted=1),
    ]
