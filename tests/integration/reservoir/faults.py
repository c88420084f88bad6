"""A power cut on demand: `penstock` dies by SIGKILL right before its N-th change to a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from tests.integration.reservoir.loaded import Ended, loaded


@dataclass(frozen=True)
class PowerCut:
    """Runs commands of `penstock`; changes below `folder` count."""

    folder: Path

    def run(
        self, *words: str | Path, before: int | None = None, environment: Mapping[str, str] = MappingProxyType({})
    ) -> Ended:
        """Run a command; with `before`, cut the power right before that change, counted from 0."""
        return loaded.run(*words, environment=environment, below=self.folder, before=before)


def moments(changes: Sequence[str], most: int = 24) -> list[int]:
    """Return the moments worth a cut: the first, the middle and the last of each row of changes of one kind.

    Where these are too many, `most` of them, from the first to the last.
    """
    found: list[int] = []
    start = 0
    for _, row in groupby(changes):
        length = len(list(row))
        found += sorted({start, start + length // 2, start + length - 1})
        start += length
    step = (len(found) - 1) / (most - 1)
    return found if len(found) <= most else [found[round(index * step)] for index in range(most)]
