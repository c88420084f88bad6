"""Names of Python packages that the site published at any time: what was published once is no name for uploads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from common import files
from common.errors import IntegrityError

LIST = "published-names.json"


def read(root: Path) -> set[str]:
    """Return the names that the store at `root` remembers; raises IntegrityError where the list is damaged."""
    path = root / LIST
    try:
        return {str(name) for name in json.loads(path.read_text())["names"]}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError) as error:
        hint = "remove it, and publish again: names of publications that were pruned are then free for uploads"
        raise IntegrityError("the list of names that were published is damaged", where=str(path), hint=hint) from error


def remember(root: Path, publications: Iterable[Path]) -> None:
    """Note the names that publications, as folders, have; raises IntegrityError where the list is damaged."""
    found = {folder.name for each in publications for folder in (each / "pypi" / "simple").glob("*/")}
    known = read(root)
    if not known >= found:
        files.write(root / LIST, json.dumps({"schema": 1, "names": sorted(known | found)}) + "\n")
