"""Names of system calls come from the system's own library."""

from __future__ import annotations

import pytest

from common import syscalls
from common.errors import UnavailableError

X86_64, X86, AARCH64 = 0xC000003E, 0x40000003, 0xC00000B7


@pytest.mark.parametrize(
    ("architecture", "number", "name"),
    [
        (X86_64, 83, "mkdir"),
        (X86_64, 83 | 0x40000000, "mkdir"),
        (X86, 39, "mkdir"),
        (X86, 102, "socketcall"),
        (AARCH64, 34, "mkdirat"),
        (X86_64, 9999, "call-9999"),
    ],
)
def test_a_number_has_the_name_of_its_architecture(architecture: int, number: int, name: str) -> None:
    assert syscalls.name_of(architecture, number) == name


def test_calls_of_any_architecture_are_known_and_misspelt_ones_are_not() -> None:
    assert [syscalls.is_known(name) for name in ("mkdirat", "socketcall", "mkdirrat", "")] == [True, True, False, False]


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "LIBRARY", "libnowhere.so.2")
    syscalls.libseccomp.cache_clear()
    try:
        with pytest.raises(UnavailableError, match="libnowhere"):
            syscalls.is_known("mkdir")
    finally:
        syscalls.libseccomp.cache_clear()
