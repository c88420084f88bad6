"""Files of the project, as tests read them that hold rules for all of it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_OURS = {"build", "dist", "node_modules", "vendor"}
OURS = {".ci", ".config"}


def files() -> Iterator[Path]:
    """Every file of ours; all but two of the folders whose name begins with a dot belong to tools."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(each for each in folders if each in OURS or (each not in NOT_OURS and each[0] != "."))
        yield from (Path(folder, each) for each in sorted(names))


def docstring(path: Path) -> str:
    """What a module says of itself: nothing else may stand before an import from the future, so no more is parsed."""
    return ast.get_docstring(ast.parse(path.read_text().partition("\nfrom __future__ ")[0])) or ""
