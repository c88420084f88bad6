"""The modules of the library: what each one offers stands in its own header, and none needs itself by way of others."""

from __future__ import annotations

import re
import shutil
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import appliance.gpu

SOURCES = Path(appliance.gpu.__file__).parent / "shim"
SHARED = {"shim", "layout"}
"""Headers that all share; they belong to no module."""
FOR_ASSEMBLY = {"psg_dlsym", "psg_dlopen_mode"}
"""Offered to entry.S alone, which reads no header."""


def code(path: Path) -> str:
    """A file without its comments, each macro on one line."""
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL).replace("\\\n", " ")


def modules(folder: Path) -> dict[str, str]:
    return {path.stem: code(path) for path in sorted(folder.glob("*.c"))}


def headers(folder: Path) -> dict[str, str]:
    return {path.stem: code(path) for path in sorted(folder.glob("*.h"))}


def included(text: str) -> set[str]:
    return set(re.findall(r'^#include "(\w+)\.h"', text, re.MULTILINE)) - SHARED


def declared(text: str) -> set[str]:
    """The functions that are declared outside of macros and not defined there."""
    return set(re.findall(r"^(?!static|#)\w[^\n=;{}]*?\b(psg_\w+)\([^;{}]*\);", text, re.MULTILINE))


def defined(text: str) -> set[str]:
    """The functions that other modules could call."""
    return set(re.findall(r"^(?!static|#)\w[^\n=;{}]*?\b(psg_\w+)\([^;{}]*\)\s*\{", text, re.MULTILINE))


def needs(folder: Path) -> dict[str, set[str]]:
    """By each module those whose headers it reads; what it calls of others must have been declared there."""
    above = headers(folder)
    return {
        module: (included(text) | included(above.get(module, ""))) - {module}
        for module, text in modules(folder).items()
    }


def order(folder: Path) -> list[str]:
    """The modules, each behind those that it needs; raises CycleError where there is no such order."""
    return [*TopologicalSorter(needs(folder)).static_order()]


def test_no_module_needs_itself_by_way_of_others() -> None:
    assert sorted(order(SOURCES)) == sorted(modules(SOURCES))


@pytest.mark.parametrize(("low", "high"), [("account", "pools"), ("fork", "table"), ("device", "compute")])
def test_a_circle_would_be_found(tmp_path: Path, low: str, high: str) -> None:
    folder = tmp_path / "shim"
    shutil.copytree(SOURCES, folder)
    source = folder / f"{low}.c"
    source.write_text(f'#include "{high}.h"\n{source.read_text()}')
    with pytest.raises(CycleError):
        order(folder)


@pytest.mark.parametrize("module", modules(SOURCES))
def test_a_header_declares_what_its_module_defines(module: str) -> None:
    offered = declared(headers(SOURCES).get(module, ""))
    assert offered == defined(modules(SOURCES)[module]) - FOR_ASSEMBLY


def test_nothing_is_declared_anywhere_else() -> None:
    assert not {name for shared in SHARED for name in declared(headers(SOURCES)[shared])}
    assert {name for text in modules(SOURCES).values() for name in declared(text)} == FOR_ASSEMBLY


def test_the_drivers_functions_are_called_past_the_hooks_that_stand_before_them() -> None:
    hooked = set(re.findall(r"^(?:HOOK|ALSO)\((\w+)", (SOURCES / "hooks.def").read_text(), re.MULTILINE))
    for module, text in modules(SOURCES).items():
        called = set(re.findall(r"(?<!EXPORT CUresult )(?<![\w.>])(cu[A-Z]\w+)\(", text))
        assert not called & hooked, f"{module}.c calls a hook: ask the driver by REAL"


@pytest.mark.parametrize(
    "module", [name for name, text in modules(SOURCES).items() if "PTHREAD_MUTEX_INITIALIZER" in text]
)
def test_a_module_with_a_lock_registers_for_forks(module: str) -> None:
    assert modules(SOURCES)[module].count("\nAT_FORK(") == 1


def test_the_map_of_modules_is_true() -> None:
    comment = (SOURCES / "shim.h").read_text().split("*/", 1)[0]
    rows = [row.split("  ")[0].split() for row in re.findall(r"^ \*   (\w.*)$", comment, re.MULTILINE)]
    height = {module: -number for number, row in enumerate(rows) for module in row}
    assert sorted(height) == sorted(modules(SOURCES))
    wrong = [
        f"{one} needs {other}"
        for one, below in needs(SOURCES).items()
        for other in below
        if height[other] >= height[one]
    ]
    assert not wrong
