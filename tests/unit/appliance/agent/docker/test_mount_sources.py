"""Folders that sessions mount."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.agent.docker import mount_sources
from common.errors import InputError, UnavailableError


def make(folder: Path, roots: list[Path]) -> Path:
    """Return where what was opened lies."""
    descriptor = mount_sources.make(folder, roots)
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    finally:
        os.close(descriptor)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    return tmp_path / "root"


def test_what_is_missing_is_made_for_owner_and_group_whatever_the_mask(root: Path) -> None:
    mask = os.umask(0o077)
    try:
        made = make(root / "team-a/data", [root])
    finally:
        os.umask(mask)
    assert made == root / "team-a/data"
    assert [(root / part).stat().st_mode & 0o7777 for part in ("team-a", "team-a/data")] == [0o770, 0o770]


def test_what_is_there_keeps_its_mode(root: Path) -> None:
    (root / "team-a").mkdir(mode=0o700)
    make(root / "team-a/data", [root])
    assert (root / "team-a").stat().st_mode & 0o7777 == 0o700
    assert make(root, [root]) == root
    (root / "file").write_text("text")
    assert make(root / "file", [root]) == root / "file"


def test_links_within_are_followed_and_those_that_lead_out_are_refused(root: Path) -> None:
    (root / "within").symlink_to(root / "real")
    assert make(root / "within/data", [root]) == root / "real/data"
    (root / "out").symlink_to(root.parent / "outside")
    with pytest.raises(InputError):
        make(root / "out/data", [root])
    assert not (root.parent / "outside/data").exists()


def test_a_link_that_is_put_in_the_way_meanwhile_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the path and the walk along it, the folder becomes a link that leads out."""
    (root / "team-a").mkdir()
    mkdir = os.mkdir

    def swap(part: str, mode: int, *, dir_fd: int) -> None:
        if part == "team-a":
            (root / "team-a").rmdir()
            (root / "team-a").symlink_to(root.parent / "outside")
        mkdir(part, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swap)
    with pytest.raises(UnavailableError):
        make(root / "team-a/data", [root])
    assert not (root.parent / "outside/data").exists()


def test_a_folder_that_is_a_link_only_at_a_second_look_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks at the path the folder becomes a link, and it is the first look that counts."""
    (root / "team-a").mkdir()
    resolve = Path.resolve

    def swap(path: Path, strict: bool = False) -> Path:
        real = resolve(path, strict)
        if path.name == "team-a" and not path.is_symlink():
            path.rmdir()
            path.symlink_to(root.parent / "outside")
        return real

    monkeypatch.setattr(Path, "resolve", swap)
    with pytest.raises(UnavailableError):
        make(root / "team-a", [root])


def test_what_is_no_folder_and_no_file_is_refused(root: Path) -> None:
    os.mkfifo(root / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(UnavailableError, match="Not a directory"):
        make(root / "pipe", [root])
    with pytest.raises(UnavailableError):
        make(root / "pipe/data", [root])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_links_in_a_circle_are_the_callers_mistake(root: Path) -> None:
    (root / "circle").symlink_to("circle")
    with pytest.raises(InputError, match="links lead in a circle"):
        make(root / "circle" / "data", [root])


def test_storage_that_refuses_keeps_no_folder_open(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "mkdir", full)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(UnavailableError, match="No space left"):
            make(root / "data", [root])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
