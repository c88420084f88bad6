"""Copies between this machine and a session: what is there already stays, and what is left out is named.

The session is this machine, too: its `tar` and `test` are those of the path. It says what it likes, and its words are
obeyed by no terminal.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from appliance.cli import copies
from common.errors import InputError, NotFoundError, ProcessError

HERE: Any = None
"""The place of a session that is this machine."""


class Local:
    """A command of this machine in place of one in a session."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self.write, self.end_input, self.read = process.stdin.write, process.stdin.close, process.stdout.read
        self._process, self._errors = process, errors

    def exit_code(self) -> int:
        return self._process.wait()

    @property
    def errors(self) -> bytes:
        self._errors.seek(0)
        return self._errors.read()


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a session that is this machine."""

    @contextmanager
    def running(_: Any, command: Sequence[str]) -> Iterator[Local]:
        with (
            (tmp_path / "errors").open("w+b") as errors,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
        ):
            yield Local(process, errors)

    monkeypatch.setattr(copies, "running", running)
    root = tmp_path / "session"
    root.mkdir()
    return root


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_text("new")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    (made / "inside").write_text("new")
    return made


class Saying:
    """A `tar` that fails with these words."""

    def __init__(self, errors: bytes) -> None:
        self.errors = errors
        self.read = io.BytesIO().read

    def exit_code(self) -> int:
        return 2


def test_what_tar_says_is_shown_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def running(*_: Any) -> Iterator[Saying]:
        yield Saying(b"tar: \x1b]0;pwned\x07\x1b[2J\n")

    monkeypatch.setattr(copies, "running", running)
    place: Any = None
    with pytest.raises(ProcessError, match=r"tar: \\x1b\]0;pwned\\x07\\x1b\[2J"):
        copies.fetch(place, "/x", str(tmp_path / "y"))


def test_a_folder_replaces_no_file(session: Path, folder: Path) -> None:
    there = session / "there"
    there.write_text("old")
    with pytest.raises(InputError, match=f"{there}: something else is there already"):
        copies.send(HERE, str(folder), str(there))
    (session / "folder").write_text("old")
    with pytest.raises(InputError, match="something else is there already"):
        copies.send(HERE, str(folder), str(session))
    assert (there.read_text(), (session / "folder").read_text()) == ("old", "old")


@pytest.mark.parametrize("target", ["there", ""])
def test_a_file_replaces_nothing_but_files(session: Path, file: Path, target: str) -> None:
    there = session / (target or file.name)
    os.mkfifo(there)
    with pytest.raises(InputError, match=f"{there}: something else is there already"):
        copies.send(HERE, str(file), str(session / target))
    assert there.is_fifo()
    there.unlink()
    there.write_text("old")
    copies.send(HERE, str(file), str(session / target))
    assert there.read_text() == "new"


def test_a_file_goes_into_no_folder_of_its_name(session: Path, file: Path) -> None:
    (session / "file").mkdir()
    with pytest.raises(InputError, match="something else is there already"):
        copies.send(HERE, str(file), str(session))


def test_a_copy_goes_through_links(session: Path, file: Path, folder: Path) -> None:
    (session / "to-file").symlink_to("real")
    with pytest.raises(InputError, match="to-file: something else is there already"):
        copies.send(HERE, str(file), str(session / "to-file"))
    (session / "real").touch()
    copies.send(HERE, str(file), str(session / "to-file"))
    assert (session / "to-file").readlink() == Path("real")
    assert (session / "real").read_text() == "new"
    (session / "real").unlink()
    (session / "real").mkdir()
    (session / "folder").symlink_to("real")
    copies.send(HERE, str(folder), str(session))
    assert (session / "folder").readlink() == Path("real")
    assert (session / "real" / "inside").read_text() == "new"
    (session / "to-null").symlink_to("/dev/null")
    with pytest.raises(InputError, match="to-null: something else is there already"):
        copies.send(HERE, str(file), str(session / "to-null"))
    (session / "round").symlink_to("round")
    with pytest.raises(InputError, match="round: something else is there already"):
        copies.send(HERE, str(file), str(session / "round"))


def test_what_is_no_file_of_a_folder_is_named(session: Path, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket"))
        with pytest.raises(InputError) as refused:
            copies.send(HERE, str(folder), str(session))
    assert [(problem.where, problem.reason) for problem in refused.value.problems] == [
        (str(folder / "pipe"), "was left out"),
        (str(folder / "socket"), "was left out"),
    ]
    assert [path.name for path in (session / "folder").iterdir()] == ["inside"]


def test_a_folder_that_is_missing_is_named(session: Path, file: Path) -> None:
    with pytest.raises(NotFoundError, match=f"{session}/none: is no folder of the session"):
        copies.send(HERE, str(file), str(session / "none" / "file"))
    with pytest.raises(InputError, match=f"{session}/here/: is no folder"):
        copies.fetch(HERE, str(file), f"{session}/here/")
    assert list(session.iterdir()) == []


def test_the_first_word_of_tar_is_shown(session: Path, folder: Path) -> None:
    """The last one only says that there were others."""
    (session / "folder" / "inside" / "full").mkdir(parents=True)
    with pytest.raises(ProcessError, match="inside: Cannot open"):
        copies.send(HERE, str(folder), str(session))
