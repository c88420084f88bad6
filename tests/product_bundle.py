"""The product's bundle in `build/bundle`, for tiers of tests that run side by side."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reservoir.download.cache import link_or_copy
from tests.tree import ROOT

LAST = "bundle.json.sig"
"""What a bundle has when it is whole."""


@contextmanager
def alone() -> Iterator[None]:
    """Keep others from building the bundle, which replaces the one that is there."""
    lock = ROOT / "build" / "bundle.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def linked(bundle: Path, folder: Path) -> Path:
    """Return the same bundle in a folder, by links: nobody's build replaces it there.

    One that is there and the same stays, for a mount shows that one alone.
    """
    own = folder / bundle.name
    if (own / LAST).is_file() and (own / LAST).read_bytes() == (bundle / LAST).read_bytes():
        return own
    shutil.rmtree(own, ignore_errors=True)
    for path in sorted(bundle.rglob("*"), key=lambda path: path.name == LAST):
        if path.is_file():
            (own / path.relative_to(bundle)).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, own / path.relative_to(bundle))
    folder.chmod(0o755)
    return own
