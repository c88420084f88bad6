"""A file that counts is old or new, never half."""

from __future__ import annotations

import os
import resource
import shutil
import stat
from pathlib import Path

import pytest

from common import files


def test_a_file_is_written_with_its_mode_and_nothing_beside(tmp_path: Path) -> None:
    files.write(tmp_path / "key", b"secret", 0o600)
    files.write(tmp_path / "note", "größer\n")
    assert (tmp_path / "key").read_bytes() == b"secret"
    assert (tmp_path / "note").read_bytes() == "größer\n".encode()
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("key", "note")] == [0o600, 0o644]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "note"]


def test_a_pipe_gets_the_content_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write(pipe, "told")
    assert os.read(reader, 10) == b"told"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_link_in_the_folder_of_devices_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "DEVICES", tmp_path)
    (tmp_path / "stdout").symlink_to(tmp_path / "elsewhere")
    files.write(tmp_path / "stdout", "told")
    assert (tmp_path / "stdout").is_symlink()
    assert (tmp_path / "elsewhere").read_text() == "told"


def test_a_full_disk_leaves_the_old_file_and_nothing_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "note").write_text("old")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left.*{tmp_path / 'note'}"):
        files.write(tmp_path / "note", "new")
    assert (tmp_path / "note").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_file_that_the_disk_does_not_take_is_named(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            files.write(tmp_path / "note", "longer than that")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "note")
    assert not list(tmp_path.iterdir())


def test_what_a_power_cut_left_is_swept_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".hidden").write_text("kept")
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    monkeypatch.setattr(Path, "replace", lambda *_: None)
    files.write(tmp_path / "note", "never named")
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 2
    files.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".hidden"]


def test_a_folder_that_vanishes_meanwhile_takes_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gone", "stays"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"12345")
    look = os.scandir

    def scandir(path: str | Path | int) -> object:
        # by its number it is looked into to delete it
        if not isinstance(path, int) and Path(path).name == "gone":
            shutil.rmtree(path)
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert files.space([tmp_path]) == files.Space(5, 0)
