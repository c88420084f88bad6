"""The kinds of artifacts: a new one is a model in `contents`, a package here, and a line below."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from common.errors import IntegrityError, Problem
from common.progress import Progress, counter
from reservoir.artifacts import targets
from reservoir.artifacts.debian import kind as debian
from reservoir.artifacts.file import kind as file
from reservoir.artifacts.image import kind as image
from reservoir.artifacts.kind import AGAIN, Description, Find, Kind, Staging
from reservoir.artifacts.python import kind as python
from reservoir.artifacts.python.check import uninstallable
from reservoir.artifacts.rpm import kind as rpm
from reservoir.contents.artifact import Artifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord

KINDS: tuple[Kind[Any], ...] = (python, debian, rpm, image, file)
_BY_MODEL = {model: kind for kind in KINDS for model in kind.models}


def check(bundles: Sequence[Bundle], find: Find) -> list[Problem]:
    """Return why bundles could not be published together, as far as lists and the files that `find` knows say it."""
    return [*targets.check(bundles), *(problem for kind in KINDS for problem in kind.check(bundles, find))]


def check_new(bundles: Sequence[Bundle], find: Find) -> list[Problem]:
    """Return what `check` does, or else what nodes could not install: what a site holds already is not held to that."""
    return check(bundles, find) or [problem for bundle in bundles for problem in uninstallable(bundle, find)]


def publish(bundles: Sequence[Bundle], tree: Path, blobs: Path, secret: bytes, progress: Progress) -> None:
    """Write what nodes read of some bundles below `tree`; files are links to those in the folder `blobs`.

    `secret` signs the repositories. Raises ConflictError where bundles contradict each other, IntegrityError where one
    cannot be published.
    """
    keys = tree / "keys"
    keys.mkdir(parents=True)
    created = max(datetime.fromisoformat(bundle.created) for bundle in bundles)
    for kind in KINDS:
        sizes = {a.sha256: a.size for bundle in bundles for a in bundle.artifacts if isinstance(a, kind.models)}
        kind.publish(Staging(list(bundles), tree, keys, _Placing(blobs, sizes, progress), secret, created, progress))


class _Placing:
    """Links blobs to where a kind wants them, and tells how far that is."""

    def __init__(self, blobs: Path, sizes: Mapping[str, int], progress: Progress) -> None:
        self._blobs, self._sizes = blobs, sizes
        self._note = counter("link files", sum(sizes.values()), progress)

    def __call__(self, sha256: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._blobs / sha256, path)
        except FileNotFoundError as error:
            raise IntegrityError("is missing", where=f"{path.name}: {self._blobs / sha256}", hint=AGAIN) from error
        self._note(self._sizes.get(sha256, 0))


def describe(artifact: Artifact, target: TargetRecord | None) -> Description:
    """Return what others call an artifact, of one target that it is for."""
    return _BY_MODEL[type(artifact)].describe(artifact, target)
