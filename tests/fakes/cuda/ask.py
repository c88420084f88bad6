"""A program that asks for functions by ctypes and tells what it got; its first argument is the way.

`queries`: lines "symbol,version,flags" of its input go through cuGetProcAddress_v2. `names LIBRARY`: lines are names
for dlsym. Each line is answered by "code status library symbol", of the symbol that the pointer leads to.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


class _Info(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _place(address: int | None) -> str:
    found = _Info()
    if not address or not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found)):
        return "- -"
    return f"{Path((found.file or b'-').decode()).name} {(found.symbol or b'-').decode()}"


def _query(driver: ctypes.CDLL, line: str) -> str:
    symbol, version, flags = line.split(",")
    pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
    code = driver.cuGetProcAddress_v2(
        symbol.encode(), ctypes.byref(pointer), int(version), ctypes.c_uint64(int(flags, 16)), ctypes.byref(status)
    )
    return f"{code} {status.value} {_place(pointer.value)}"


def _name(library: ctypes.CDLL, name: str) -> str:
    try:
        function = getattr(library, name)
    except AttributeError:
        return "1 -1 - -"
    return f"0 -1 {_place(ctypes.cast(function, ctypes.c_void_p).value)}"


def main() -> None:
    """Answer each line of the input."""
    if sys.argv[1] == "queries":
        driver = ctypes.CDLL("libcuda.so.1")
        answers = [_query(driver, line.strip()) for line in sys.stdin]
    else:
        library = ctypes.CDLL(sys.argv[2])
        answers = [_name(library, line.strip()) for line in sys.stdin]
    print("\n".join(answers))


if __name__ == "__main__":
    main()
