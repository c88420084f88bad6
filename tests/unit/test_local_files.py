"""Files that a node alone has, on their way into a backup and back."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO

import pytest

from tests.role_modules import role_module

local_files = role_module("database_backup/library/local_files.py")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with local settings, a password that the site names, and what is nobody's business."""
    for name in ("etc/api.local.env", "etc/ldap [1].password", "etc/other"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{name} of before")
        path.chmod(0o640)
    return tmp_path


def packed(node: Path, *named: str) -> tuple[Path, list[str], list[str]]:
    words = node / "local.tar.gz", [f"{node}/etc/*.local.env"], [str(node / name) for name in named]
    local_files.pack(*words)
    return words


def test_what_the_site_names_comes_back_where_it_is_gone(node: Path) -> None:
    words = packed(node, "etc/ldap [1].password", "etc/never-there")
    password = node / "etc/ldap [1].password"
    password.unlink()
    (node / "etc/other").unlink()
    assert local_files.unpack(*words) == 2
    assert (password.read_text(), password.stat().st_mode & 0o777) == ("etc/ldap [1].password of before", 0o640)
    assert not (node / "etc/other").exists()


def test_what_the_site_names_and_has_is_left_alone(node: Path) -> None:
    """A certificate of others may be newer than the backup; local settings go with its database."""
    words = packed(node, "etc/ldap [1].password")
    for name in ("etc/ldap [1].password", "etc/api.local.env"):
        (node / name).write_text("newer")
    assert local_files.unpack(*words) == 1
    assert (node / "etc/ldap [1].password").read_text() == "newer"
    assert (node / "etc/api.local.env").read_text() == "etc/api.local.env of before"
    assert (node / "etc/api.local.env.before").read_text() == "newer"


def test_a_link_to_nowhere_is_something(node: Path) -> None:
    words = packed(node, "etc/ldap [1].password")
    password = node / "etc/ldap [1].password"
    password.unlink()
    password.symlink_to(node / "etc/elsewhere")
    assert local_files.unpack(*words) == 1
    assert not (node / "etc/elsewhere").exists()


def test_nothing_comes_back_that_neither_matches_nor_is_named(node: Path) -> None:
    archive, patterns, named = packed(node, "etc/ldap [1].password")
    (node / "etc/ldap [1].password").unlink()
    assert named
    assert local_files.unpack(archive, patterns, []) == 1
    assert not (node / "etc/ldap [1].password").exists()


def test_nobody_reads_what_comes_back_before_it_has_its_mode(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, password = packed(node, "etc/ldap [1].password"), node / "etc/ldap [1].password"
    modes: list[int] = []
    password.unlink()
    give = local_files._give

    def seen(*given: object) -> None:
        modes.extend(path.stat().st_mode & 0o777 for path in (password, node / "etc/api.local.env") if path.exists())
        give(*given)

    monkeypatch.setattr(local_files, "_give", seen)
    local_files.unpack(*words)
    assert set(modes) <= {0o600, 0o640}
    assert 0o600 in modes


def test_a_link_that_comes_meanwhile_is_not_followed(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of the API may write where its audit log is."""
    words, before = packed(node), (node / "etc/other").read_text()

    class Linking(tarfile.TarFile):
        def extractfile(self, member: str | tarfile.TarInfo) -> IO[bytes] | None:
            (node / "etc/api.local.env").symlink_to(node / "etc/other")
            return super().extractfile(member)

    monkeypatch.setattr(local_files.tarfile, "open", lambda archive: Linking.gzopen(str(archive), "r"))
    with pytest.raises(FileExistsError):
        local_files.unpack(*words)
    assert (node / "etc/other").read_text() == before
