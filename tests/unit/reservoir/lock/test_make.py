from __future__ import annotations

import threading
from pathlib import Path

import pytest

from reservoir.artifacts.kind import locked_images
from reservoir.contents.lock import LockedImage
from reservoir.download import indexes
from reservoir.download.cache import Cache
from reservoir.lock.file import matches, read_lock, write_lock
from reservoir.lock.make import make
from reservoir.manifest import reading
from tests.unit.reservoir.lock.conftest import DEBS
from tests.unit.reservoir.parts import MANIFEST


def test_a_lock_is_the_union_of_all_closures(manifest: Path, locked: Path) -> None:
    found = read_lock(locked)
    assert [(a.kind, a.name) for a in found.artifacts] == [
        ("debian", "bash"),
        ("debian", "jq"),
        ("debian", "libc6"),
        ("debian", "python3"),
        ("python", "rich"),
    ]
    assert found.artifacts[-1].size == 77
    (image,) = found.images
    assert image.base == [DEBS["bash"].sha256, DEBS["libc6"].sha256]
    assert image.packages == [DEBS["python3"].sha256]


def test_locking_again_changes_nothing(manifest: Path, locked: Path, tmp_path: Path) -> None:
    assert matches(locked, manifest)
    assert not write_lock(make(manifest, Cache(tmp_path / "cache")), locked)


def test_pip_is_asked_once_for_all_targets_and_kinds(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    plain = indexes.Indexes(None, [], [], False, None)

    def machine() -> indexes.Indexes:
        asked.append("pip")
        return plain

    monkeypatch.setattr(indexes, "machine", machine)
    other = '  - {name: debian13, release: trixie, python: "3.13"}\n'
    text = MANIFEST.replace("python:\n", f"{other}python:\n", 1)
    notes = tmp_path / "notes.txt"
    notes.touch()
    manifest.write_text(f"{text}files: [{{name: notes.txt, url: '{notes.as_uri()}', sha256: {'a' * 64}}}]\n")
    assert {a.kind for a in make(manifest, Cache(tmp_path / "cache")).artifacts} == {"debian", "file", "python"}
    assert asked == ["pip"]


@pytest.mark.parametrize("what", ["Python", "Debian"])
def test_targets_are_resolved_side_by_side(manifest: Path, tmp_path: Path, what: str) -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(step: str, done: int = 0, total: int = 0) -> None:
        if step.startswith(f"resolve {what} packages for"):
            both.wait()

    other = '  - {name: debian13, release: trixie, python: "3.13"}\n'
    manifest.write_text(MANIFEST.replace("python:\n", f"{other}python:\n", 1))
    found = make(manifest, Cache(tmp_path / "cache"), meet)
    assert {target for one in found.artifacts for target in one.targets} == {"debian12", "debian13"}


def test_each_kind_says_its_part_of_an_image() -> None:
    wanted = reading.load(MANIFEST, "manifest.yml")
    debian = LockedImage(name="small/base", tag="1", base=["a" * 64], packages=["b" * 64])
    python = LockedImage(name="small/base", tag="1", base=[], packages=[], python=["c" * 64])
    (image,) = locked_images(wanted, [python, debian])
    assert image == debian.model_copy(update={"python": python.python})
