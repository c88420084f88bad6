from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common import process
from common.errors import ProcessError, UnavailableError
from reservoir.bundle import bundles
from reservoir.contents.artifact import FileArtifact
from reservoir.download import cache
from reservoir.intake import copies
from reservoir.intake.store import Store
from tests.unit.reservoir.parts import artifact, make_bundle, take

COUNT = 60
FEW = 10


@pytest.fixture
def many(tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of many small files."""
    monkeypatch.setattr(cache, "MANY", FEW)
    parts = tmp_path / "parts"
    parts.mkdir()
    paths = [parts / f"file-{number}.bin" for number in range(COUNT)]
    for path in paths:
        path.write_text(path.name)
    return make_bundle(tmp_path, key, made=[(artifact(path, FileArtifact, path.name), path) for path in paths])


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The files that were waited for one by one."""
    handles: list[int] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        handles.append(handle)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    return handles


def blobs(bundle: Path) -> set[str]:
    return {path.name for path in (bundle / bundles.BLOBS).iterdir()}


def test_many_small_files_are_waited_for_together(many: Path, tmp_path: Path, waited: list[int]) -> None:
    take(many, tmp_path / "site")
    assert len(waited) < COUNT // 2
    assert {path.name for path in Store(tmp_path / "site").blobs.iterdir()} == blobs(many)


def test_a_file_has_its_name_only_once_it_is_on_the_disk(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "TOGETHER", COUNT // 3)
    rounds: list[int] = []

    def noted(paths: Sequence[Path], folder: Path) -> None:
        assert not [path for path in paths if path.with_suffix("").exists()]
        rounds.append(len(paths))
        cache.flush_together(paths, folder)

    monkeypatch.setattr(copies, "flush_together", noted)
    take(many, tmp_path / "site")
    # with the bill of materials
    assert sum(rounds) == COUNT + 1
    assert len(rounds) >= 3


def test_a_big_file_waits_for_no_other(tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"." * (copies.SMALL + 1))
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    with copies.copying() as under_way:
        assert under_way.copy(source, tmp_path / sha256, sha256) == sha256
        assert (tmp_path / sha256).stat().st_mode & 0o777 == 0o444


def test_an_interruption_names_what_was_copied(tmp_path: Path) -> None:
    source = tmp_path / "small"
    source.write_bytes(b"small")
    sha256 = hashlib.sha256(b"small").hexdigest()

    def interrupted() -> None:
        with copies.copying() as under_way:
            under_way.copy(source, tmp_path / sha256, sha256)
            assert not (tmp_path / sha256).exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / sha256).read_bytes() == b"small"
    assert not list(tmp_path.glob("*.partial"))


def test_a_disk_that_fails_at_the_end_is_told_and_nothing_counts(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise ProcessError("sync failed", where="sync", hint="")

    def says_why(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(process, "run", full)
    monkeypatch.setattr(cache, "flush", says_why)
    root = tmp_path / "site"
    with pytest.raises(UnavailableError, match="no space left on the disk"):
        take(many, root)
    assert not Store(root).imported()
    assert not Store(root).incoming.exists()


def test_what_a_killed_import_left_unfinished_takes_no_space(many: Path, tmp_path: Path) -> None:
    bundle = bundles.decode((many / bundles.LIST).read_bytes(), "x")
    arriving = Store(tmp_path / "site").incoming / bundles.identity(bundle, (many / bundles.LIST).read_bytes())
    arriving.mkdir(parents=True)
    left = arriving / f"{next(iter(bundle.sizes()))}.partial"
    left.write_text("half")
    left.chmod(0o444)
    seen: list[bool] = []

    def note(step: str, done: int = 0, total: int = 0) -> None:
        if step == "import":
            seen.append(left.exists() and left.read_text() == "half")

    take(many, tmp_path / "site", progress=note)
    assert seen
    assert not any(seen)
