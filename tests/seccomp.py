"""Filters of system calls as a container gets them: made by the system's libseccomp in runc's way, and run here.

The rules are in the form of the OCI runtime specification. What comes out is the kernel's program for its filters
(classic BPF), which decides about one call by its number, its architecture and its arguments.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import syscalls

X86_64, X86, ARM64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028
"""Architectures as the kernel numbers them (AUDIT_ARCH)."""
X32 = 0x4000003E
"""That of libseccomp alone: the kernel tells it from x86-64 by a bit of the number."""
TOKENS = {
    "SCMP_ARCH_X86_64": X86_64,
    "SCMP_ARCH_X86": X86,
    "SCMP_ARCH_X32": X32,
    "SCMP_ARCH_AARCH64": ARM64,
    "SCMP_ARCH_ARM": ARM,
}
ALLOW, NOTIFY, ERRNO, KILL = 0x7FFF0000, 0x7FC00000, 0x00050000, 0
ACTIONS = {"SCMP_ACT_ALLOW": ALLOW, "SCMP_ACT_NOTIFY": NOTIFY, "SCMP_ACT_ERRNO": ERRNO}
_OPERATORS = {"NE": 1, "LT": 2, "LE": 3, "EQ": 4, "GE": 5, "GT": 6, "MASKED_EQ": 7}
_EPERM = 1
_DIRECT = {(X86, "socket"): 359, (X86, "socketpair"): 360, (X86, "bind"): 361, (X86, "shmget"): 395}
"""Calls that programs of 32 bits can also make by another one, for which the library has no number of their own."""
_UNKNOWN = -1


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Filter:
    """A program of the kernel: instructions of code, two jumps, and a number."""

    program: Sequence[tuple[int, int, int, int]]

    @property
    def code(self) -> bytes:
        """The program as the kernel takes it."""
        return b"".join(struct.pack("<HBBI", *instruction) for instruction in self.program)

    def decide(self, architecture: int, number: int, arguments: Sequence[int]) -> int:
        """Return what the kernel does with a call: an action, and an errno in its lower half."""
        data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments)
        accumulator, at = 0, 0
        while True:
            code, yes, no, k = self.program[at]
            at += 1
            match code:
                case 0x20:
                    (accumulator,) = struct.unpack_from("<I", data, k)
                case 0x54:
                    accumulator &= k
                case 0x05:
                    at += k
                case 0x15:
                    at += yes if accumulator == k else no
                case 0x25:
                    at += yes if accumulator > k else no
                case 0x35:
                    at += yes if accumulator >= k else no
                case 0x06:
                    return k
                case _:
                    raise AssertionError(f"the program has the instruction {code:#x}")


def made(seccomp: Mapping[str, Any]) -> Filter:
    """Return the filter of a container's configuration; raises ValueError where the library refuses a rule."""
    library = _library()
    context = library.seccomp_init(_action(seccomp["defaultAction"], seccomp))
    try:
        for name in seccomp["architectures"]:
            library.seccomp_arch_add(context, TOKENS[name])
        for rule in seccomp["syscalls"]:
            _add(library, context, seccomp, rule)
        return Filter(_exported(library, context))
    finally:
        library.seccomp_release(context)


def number_of(architecture: int, call: str) -> int | None:
    """Return a call's number on an architecture; None where it has no number of its own there."""
    number: int = _library().seccomp_syscall_resolve_name_arch(architecture, call.encode())
    return number if number >= 0 else _DIRECT.get((architecture, call))


def _add(library: ctypes.CDLL, context: int, seccomp: Mapping[str, Any], rule: Mapping[str, Any]) -> None:
    action = _action(rule["action"], rule)
    if action == _action(seccomp["defaultAction"], seccomp):
        return
    comparisons = [
        _Comparison(
            test["index"], _OPERATORS[test["op"].removeprefix("SCMP_CMP_")], test["value"], test.get("valueTwo", 0)
        )
        for test in rule.get("args") or []
    ]
    twice = max(Counter(test.arg for test in comparisons).values(), default=0) > 1
    parts = [[each] for each in comparisons] if twice else [comparisons]
    for name in rule["names"]:
        call = library.seccomp_syscall_resolve_name(name.encode())
        if call == _UNKNOWN:
            continue
        for part in parts:
            error = library.seccomp_rule_add_array(context, action, call, len(part), (_Comparison * len(part))(*part))
            if error:
                raise ValueError(f"the library refuses a rule for {name}: {os.strerror(-error)}")


def _exported(library: ctypes.CDLL, context: int) -> Sequence[tuple[int, int, int, int]]:
    with os.fdopen(os.memfd_create("filter"), "rb") as file:
        if library.seccomp_export_bpf(context, file.fileno()):
            raise ValueError("the library makes no program of these rules")
        file.seek(0)
        return list(struct.iter_unpack("<HBBI", file.read()))


def _action(name: str, given: Mapping[str, Any]) -> int:
    return ACTIONS[name] | (
        given.get("errnoRet", given.get("defaultErrnoRet", _EPERM)) if name == "SCMP_ACT_ERRNO" else 0
    )


def _library() -> ctypes.CDLL:
    library = syscalls.libseccomp()
    library.seccomp_init.argtypes, library.seccomp_init.restype = [ctypes.c_uint32], ctypes.c_void_p
    library.seccomp_arch_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(_Comparison),
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.seccomp_release.argtypes, library.seccomp_release.restype = [ctypes.c_void_p], None
    library.seccomp_syscall_resolve_name_arch.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    return library
