"""What a lock says of the repositories that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.errors import NotFoundError
from reservoir.artifacts.kind import Resolving
from reservoir.artifacts.rpm import closure, metadata, source
from reservoir.download import indexes
from reservoir.download.cache import Cache
from reservoir.manifest.model import Manifest


@pytest.mark.parametrize("signed", [True, False])
def test_a_repository_whose_metadata_nobody_signs_is_said_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, signed: bool
) -> None:
    content = {"schema": 1, "name": "small", "version": "1", "targets": [{"name": "el9", "os": "rpm", "release": "9"}]}
    manifest, told = Manifest.model_validate(content), list[str]()

    def gone(*_: object, **__: object) -> Any:
        raise NotFoundError("nothing is there")

    def note(step: str, done: int = 0, total: int = 0) -> None:
        told.append(step)

    repository = source.Repository("vendor", "https://me:secret@vendor.example/9/", (), signed)
    monkeypatch.setattr(source, "of_target", lambda *_: [repository])
    monkeypatch.setattr(metadata, "read", gone)
    here = indexes.Indexes(index=None, extra=[], links=[], offline=True, certificates=None)
    resolving = Resolving(manifest, tmp_path / "manifest.yml", Cache(tmp_path / "cache"), note, lambda: here)
    with pytest.raises(NotFoundError):
        closure.of_target(resolving, manifest.targets[0])
    said = "trust https://vendor.example/9/ to say what vendor offers: nobody signs that"
    assert (said in told) is not signed
