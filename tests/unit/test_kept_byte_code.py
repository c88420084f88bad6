"""What nodes have compiled of Ansible's modules: kept, found again, and of nobody else."""

from __future__ import annotations

import marshal
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.role_modules import role_module

loader = role_module("restarts/module_utils/_internal/_ansiballz/__init__.py")

Run = Callable[[str, str], str]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for byte code."""
    monkeypatch.setattr(loader, "FOLDER", tmp_path / "kept")
    assert loader.trusted(loader.FOLDER)
    return tmp_path / "kept"


@pytest.fixture
def run(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Imports a module of a package from an archive of a name, and returns what it says."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))

    def run(name: str, source: str) -> str:
        archive = tmp_path / f"{name}.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("carried/__init__.py", "")
            file.writestr("carried/inner.py", source)
        loader.install(str(archive))
        sys.path.insert(0, str(archive))
        for imported in ("carried", "carried.inner"):
            sys.modules.pop(imported, None)
        inner = import_module("carried.inner")
        assert inner.__file__ == f"{archive}/carried/inner.py"
        return str(inner.SAID)

    assert kept.is_dir()
    yield run
    for imported in ("carried", "carried.inner"):
        sys.modules.pop(imported, None)


def test_ansible_has_nothing_of_its_own_where_ours_is() -> None:
    spec = find_spec("ansible.module_utils._internal._ansiballz")
    assert spec
    assert spec.origin
    assert Path(spec.origin).read_text() == ""


def test_what_was_compiled_once_is_taken_from_another_archive(kept: Path, run: Run) -> None:
    assert run("first", "SAID = 'source'") == "source"
    (path,) = [each for each in kept.iterdir() if b"source" in each.read_bytes()]
    path.write_bytes(marshal.dumps(compile("SAID = 'byte code'", "inner", "exec")))
    assert run("second", "SAID = 'source'") == "byte code"


def test_another_source_is_compiled(run: Run) -> None:
    assert [run("first", "SAID = 'one'"), run("second", "SAID = 'two'")] == ["one", "two"]


@pytest.mark.parametrize("content", [b"", b"?", marshal.dumps("a text")[:-1]])
def test_what_is_damaged_is_compiled_again(kept: Path, run: Run, content: bytes) -> None:
    assert run("first", "SAID = 'source'") == "source"
    for path in kept.iterdir():
        path.write_bytes(content)
    assert run("second", "SAID = 'source'") == "source"
    assert content not in [path.read_bytes() for path in kept.iterdir()]


def test_modules_run_where_nothing_can_be_kept(kept: Path, run: Run) -> None:
    kept.rmdir()
    assert run("first", "SAID = 'source'") == "source"
    assert not kept.exists()


def test_a_folder_to_which_others_may_write_is_not_trusted(tmp_path: Path, kept: Path) -> None:
    kept.chmod(0o777)
    assert not loader.trusted(kept)
    kept.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(kept)
    assert loader.trusted(kept)
    assert not loader.trusted(link)
    assert not loader.trusted(tmp_path / "absent" / "kept")
