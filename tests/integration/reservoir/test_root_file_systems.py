"""Changes of an image's root file system stay in it, wherever its links lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import InputError, ProcessError
from reservoir.artifacts.image import root as roots
from reservoir.artifacts.image.recipe import finish
from reservoir.manifest.model import Image


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder of the machine that builds."""
    folder = tmp_path / "host"
    (folder / "kept").mkdir(parents=True)
    (folder / "kept" / "file").write_text("the machine's own")
    return folder


@pytest.fixture
def root(tmp_path: Path, host: Path) -> Path:
    """A root with links as every Debian root has them: followed from outside they lead to the machine."""
    root = tmp_path / "root"
    (root / "var").mkdir(parents=True)
    (root / "run").mkdir()
    (root / "var" / "run").symlink_to("/run")
    (root / "folder").symlink_to(host)
    (root / "file").symlink_to(host / "kept" / "file")
    (root / "up").symlink_to("../host")
    return root


def everything(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in folder.rglob("*")}


@pytest.mark.parametrize("path", ["/folder/new", "/folder/kept/file", "/file", "/up/new", "/../host/new"])
def test_a_file_that_is_written_lies_in_the_root(root: Path, host: Path, path: str) -> None:
    before = everything(host)
    (root / str(host).lstrip("/") / "kept").mkdir(parents=True)
    (root / "host").mkdir()
    roots.change(root, [roots.write(path, "the image's")])
    assert everything(host) == before
    assert "the image's" in everything(root).values()


def test_a_link_that_leads_on_in_the_root_is_followed_there(root: Path) -> None:
    roots.change(root, [roots.write("/var/run/app/started", "yes", 0o600)])
    written = root / "run" / "app" / "started"
    assert (written.read_text(), written.stat().st_mode & 0o777) == ("yes", 0o600)


def test_a_link_to_what_is_not_there_yet_is_followed_too(root: Path) -> None:
    (root / "resolv.conf").symlink_to("/run/resolver/stub.conf")
    (root / "data").symlink_to("srv/data")
    roots.change(root, [roots.write("/resolv.conf", "yes"), roots.write("/data/one", "yes")])
    assert (root / "run/resolver/stub.conf").read_text() == "yes"
    assert (root / "srv/data/one").read_text() == "yes"
    assert (root / "resolv.conf").is_symlink()


@pytest.mark.parametrize("path", ["/folder/kept", "/folder/kept/file", "/folder", "/file", "/up/kept"])
def test_what_is_taken_away_is_taken_from_the_root(root: Path, host: Path, path: str) -> None:
    before = everything(host)
    roots.change(root, [roots.remove(path), roots.clean("folder/*"), roots.clean("*/kept"), roots.empty("/file")])
    assert everything(host) == before
    assert (path in ("/folder", "/file")) == (not (root / path.lstrip("/")).is_symlink() and path.count("/") == 1)


def test_what_cannot_be_made_is_named(root: Path) -> None:
    (root / "plain").write_text("")
    with pytest.raises(ProcessError, match=r"cannot write /plain: File exists"):
        roots.change(root, [roots.write("/plain/below", "")])


@pytest.mark.parametrize("path", ["/plain/below", "/round"])
def test_a_file_of_a_recipe_that_has_no_place_is_an_error_in_the_recipe(root: Path, path: str) -> None:
    (root / "plain").write_text("")
    (root / "round").symlink_to("round")
    recipe = Image.model_validate(
        {"name": "demo", "tag": "1", "target": "debian12", "packages": [], "files": [{"path": path, "content": ""}]}
    )
    with pytest.raises(InputError, match=rf"demo:1: files: cannot write /{path.split('/')[1]}: .*Hint: give a path"):
        finish(root, recipe)
