"""Names and numbers of system calls, as libseccomp knows them; every container engine brings that library along."""

from __future__ import annotations

import ctypes
from functools import cache

from common.errors import UnavailableError

LIBRARY = "libseccomp.so.2"
_UNKNOWN = -1
_X86_64 = 0xC000003E
_X32 = 0x4000003E
_X32_BIT = 0x40000000


def is_known(name: str) -> bool:
    """Return whether there is a system call of this name, on whatever architecture; raises UnavailableError."""
    return bool(libseccomp().seccomp_syscall_resolve_name(name.encode()) != _UNKNOWN)


@cache
def name_of(architecture: int, number: int) -> str:
    """Return the name of a system call by the kernel's numbers; one that nobody knows is named by its number.

    `architecture` is the kernel's AUDIT_ARCH. Raises UnavailableError without the library.
    """
    # the kernel tells the two interfaces of x86-64 apart by a bit of the number, the library by the architecture
    token = _X32 if architecture == _X86_64 and number & _X32_BIT else architecture
    library = libseccomp()
    text = library.seccomp_syscall_resolve_num_arch(token, number)
    if not text:
        return f"call-{number}"
    try:
        return ctypes.string_at(text).decode()
    finally:
        _free()(text)


@cache
def libseccomp() -> ctypes.CDLL:
    """Return the system's library, loaded once; raises UnavailableError where there is none."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise UnavailableError(
            f"the names of system calls cannot be looked up: {error}", where=LIBRARY, hint="install libseccomp2"
        ) from error
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    library.seccomp_syscall_resolve_name.restype = ctypes.c_int
    library.seccomp_syscall_resolve_num_arch.argtypes = [ctypes.c_uint32, ctypes.c_int]
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_void_p
    return library


@cache
def _free() -> ctypes._NamedFuncPointer:
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    return free
