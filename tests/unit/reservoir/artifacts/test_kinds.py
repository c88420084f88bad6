from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

import reservoir.artifacts
from reservoir.artifacts.kinds import KINDS
from reservoir.contents.artifact import Artifact, KindName

FOLDER = Path(reservoir.artifacts.__file__).parent
PACKAGES = sorted(path.parent for path in FOLDER.glob("*/__init__.py"))
STEPS = ("describe", "fetch", "kind", "publish", "resolve")


def test_every_artifact_is_of_one_kind() -> None:
    models = get_args(get_args(Artifact)[0])
    assert sorted(model.__name__ for kind in KINDS for model in kind.models) == sorted(m.__name__ for m in models)
    assert {model.model_fields["kind"].default for model in models} == set(get_args(KindName))


def test_every_package_is_a_kind() -> None:
    assert len(PACKAGES) == len(KINDS)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_kind_has_the_same_files(package: Path) -> None:
    assert {path.stem for path in package.glob("*.py")} >= set(STEPS)
