"""Copies from a medium: each gets its name once it is on the disk, small ones many at a time."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import IntegrityError
from reservoir.bundle.verification import carried_pieces
from reservoir.download.cache import flush_together
from reservoir.signing.ed25519 import LONGEST

# a disk takes about as long for a small file as for so many bytes
SMALL = 1 << 20
# so many small files are waited for at once, and begun anew after a power cut
TOGETHER = 1000


class Copies:
    """Copies of one import into one folder, from several threads; small ones have no name until `settle`."""

    def __init__(self) -> None:
        """Begin with none."""
        self._guard = threading.Lock()
        self._nameless: list[tuple[Path, Path]] = []

    def copy(self, source: Path, destination: Path, sha256: str, longest: int = LONGEST) -> str:
        """Copy a file from a medium; return the hash of what was read.

        What has another hash than `sha256` is not kept. Raises IntegrityError for one of more than `longest` bytes.
        """
        beside = destination.with_name(f"{destination.name}.partial")
        found = hashlib.sha256()
        with gone_when_it_fails(beside), beside.open("wb") as file:
            for piece in carried_pieces(source, longest):
                found.update(piece)
                file.write(piece)
            size = file.tell()
            if size > SMALL:
                file.flush()
                os.fsync(file.fileno())
        if found.hexdigest() != sha256:
            beside.unlink()
        elif size > SMALL:
            _name(beside, destination)
        else:
            self._note(beside, destination)
        return found.hexdigest()

    def settle(self) -> None:
        """Wait until what was copied is on the disk, and name it; where the disk fails, nothing of it stays."""
        with self._guard:
            settling, self._nameless = self._nameless, []
        if not settling:
            return
        try:
            flush_together([beside for beside, _ in settling], settling[0][0].parent)
        except BaseException:
            for beside, _ in settling:
                beside.unlink(missing_ok=True)
            raise
        for beside, destination in settling:
            _name(beside, destination)

    def _note(self, beside: Path, destination: Path) -> None:
        with self._guard:
            self._nameless.append((beside, destination))
            many = len(self._nameless) >= TOGETHER
        if many:
            self.settle()


def _name(beside: Path, destination: Path) -> None:
    beside.chmod(0o444)
    beside.replace(destination)


@contextmanager
def copying() -> Iterator[Copies]:
    """Give a place for copies, all of which have their names at the end, also where that comes too early."""
    copies = Copies()
    try:
        yield copies
    finally:
        copies.settle()


@contextmanager
def gone_when_it_fails(beside: Path) -> Iterator[None]:
    """Delete a file that cannot be written whole: a full disk needs the space for what is good."""
    try:
        yield
    except (IntegrityError, OSError):
        beside.unlink(missing_ok=True)
        raise
