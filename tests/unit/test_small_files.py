"""Small files as a role writes them: in one step each, once, and with nothing of theirs in a log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from tests.role_modules import role_module

small_files = role_module("restarts/library/small_files.py")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(files: dict[Path, Any], *, check: bool = False, mode: str = "0644") -> dict[str, Any]:
        asked = {"files": {str(path): text for path, text in files.items()}, "mode": mode, "_ansible_check_mode": check}
        with patch_module_args(asked), pytest.raises(SystemExit):
            small_files.main()
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return said

    return run


def test_files_are_written_once_and_folders_are_open_to_all(tmp_path: Path, run: Any) -> None:
    first, second = tmp_path / "etc" / "own" / "a.conf", tmp_path / "b.conf"
    files = {first: "one\n", second: "zwei – ü\n"}
    before = os.umask(0o077)
    try:
        said = run(files)
    finally:
        os.umask(before)
    assert (said["changed"], said["penstock_written"]) == (True, [str(first), str(second)])
    assert {path: path.read_text() for path in files} == files
    assert [oct(path.stat().st_mode & 0o7777) for path in (first, first.parent, first.parent.parent)] == [
        "0o644",
        "0o755",
        "0o755",
    ]
    assert (run(files)["changed"], sorted(path.name for path in tmp_path.iterdir())) == (False, ["b.conf", "etc"])


def test_only_what_differs_is_written(tmp_path: Path, run: Any) -> None:
    same, other, opened = (tmp_path / name for name in ("same", "other", "opened"))
    run({same: "first", other: "second", opened: "third"}, mode="0600")
    opened.chmod(0o666)
    inode = same.stat().st_ino
    said = run({same: "first", other: "new", opened: "third"}, mode="0600")
    assert said["penstock_written"] == [str(other), str(opened)]
    assert (same.stat().st_ino, oct(opened.stat().st_mode)) == (inode, "0o100600")


def test_a_link_gives_way_and_what_it_leads_to_stays(tmp_path: Path, run: Any) -> None:
    target, link = tmp_path / "theirs", tmp_path / "link"
    target.write_text("text")
    link.symlink_to(target)
    assert run({link: "text"})["changed"]
    assert not link.is_symlink()
    assert run({link: "new"})["changed"]
    assert target.read_text() == "text"


def test_a_dry_run_says_what_it_would_write(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "folder" / "file"
    assert run({path: "text"}, check=True)["penstock_written"] == [str(path)]
    assert not path.parent.exists()


def test_a_template_that_comes_to_nothing_is_an_empty_file(tmp_path: Path, run: Any) -> None:
    assert run({tmp_path / "file": None})["changed"]
    assert (tmp_path / "file").read_text() == ""


def test_what_cannot_be_written_is_named(tmp_path: Path, run: Any) -> None:
    (tmp_path / "folder").mkdir()
    said = run({tmp_path / "folder": "text"})
    assert said["failed"]
    assert said["msg"] == f"{tmp_path}/folder cannot be written: Is a directory"


def test_contents_stand_in_no_answer(tmp_path: Path, run: Any) -> None:
    assert "hidden" not in json.dumps(run({tmp_path / "file": "hidden"}))


@pytest.mark.parametrize("content", [{"k": 98765}, ["zwei"], 98765, False], ids=lambda one: type(one).__name__)
def test_contents_that_are_no_text_are_refused_by_their_file(tmp_path: Path, run: Any, content: Any) -> None:
    said = run({tmp_path / "a.json": content, tmp_path / "b": "drei"})
    assert said["failed"]
    assert said["msg"] == f"the contents of {tmp_path / 'a.json'} are no text; put them in quotes, or make them JSON"
    assert not list(tmp_path.iterdir())
