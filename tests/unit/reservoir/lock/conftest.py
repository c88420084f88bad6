"""A manifest and its lock, on a machine whose tools know a few packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import process
from reservoir.artifacts.debian.apt import Deb, PrivateApt
from reservoir.artifacts.python import wheels
from reservoir.download import fetch, indexes
from reservoir.download.cache import Cache
from reservoir.lock.file import write_lock
from reservoir.lock.make import make
from tests.unit.reservoir.parts import MANIFEST

DEBS = {
    name: Deb(
        name, "1.0", f"{name}_1.0_amd64.deb", f"http://u:p@m.example/{name}", 10, letter * 64, f"Package: {name}\n"
    )
    for letter, name in zip("abcd", ("bash", "libc6", "python3", "jq"), strict=True)
}


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest on a machine whose apt and uv know four packages and one wheel."""
    path = tmp_path / "manifest.yml"
    path.write_text(MANIFEST)
    plain = indexes.Indexes(None, [], [], False, None)
    rich = wheels.Wheel("rich", "13.9", "rich-13.9-py3-none-any.whl", "https://x.example/rich", "e" * 64)
    monkeypatch.setattr(process, "require", lambda program, *_: program)
    monkeypatch.setattr(indexes, "machine", lambda: plain)
    monkeypatch.setattr(wheels, "closure", lambda *_: [rich])
    monkeypatch.setattr(fetch, "size_of", lambda http, url: 77)
    monkeypatch.setattr(PrivateApt, "__init__", lambda self, *_: None)
    monkeypatch.setattr(PrivateApt, "update", lambda self: None)
    monkeypatch.setattr(PrivateApt, "bootstrap", lambda self: [DEBS["bash"], DEBS["libc6"]])
    monkeypatch.setattr(
        PrivateApt, "closure", lambda self, names, where, **_: [DEBS["libc6"], *(DEBS[n] for n in names)]
    )
    return path


@pytest.fixture
def locked(manifest: Path, tmp_path: Path) -> Path:
    path = tmp_path / "reservoir.lock"
    write_lock(make(manifest, Cache(tmp_path / "cache")), path)
    return path
