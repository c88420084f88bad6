"""The kinds of artifacts: a new one is a model in `contents`, a package here, and a line below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.errors import Problem
from reservoir.artifacts.debian import kind as debian
from reservoir.artifacts.file import kind as file
from reservoir.artifacts.image import kind as image
from reservoir.artifacts.kind import Description, Find, Kind
from reservoir.artifacts.python import kind as python
from reservoir.artifacts.rpm import kind as rpm
from reservoir.contents.artifact import Artifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord

KINDS: tuple[Kind[Any], ...] = (python, debian, rpm, image, file)
_BY_MODEL = {model: kind for kind in KINDS for model in kind.models}


def check(bundles: Sequence[Bundle], find: Find) -> list[Problem]:
    """Return why bundles could not be published together, as far as lists and the files that `find` knows say it."""
    return [problem for kind in KINDS for problem in kind.check(bundles, find)]


def describe(artifact: Artifact, target: TargetRecord | None) -> Description:
    """Return what others call an artifact, of one target that it is for."""
    return _BY_MODEL[type(artifact)].describe(artifact, target)
