"""The Python index: several versions of a project, for several Pythons and machines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from common.errors import ConflictError, IntegrityError
from reservoir.artifacts.python import publish as tree
from reservoir.contents.artifact import PythonArtifact
from tests.unit.reservoir.parts import artifact, wheel

WHEELS = {
    "demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl": "1.0",
    "demo-1.0-cp313-cp313-manylinux_2_28_x86_64.whl": "1.0",
    "demo-1.0-cp313-cp313-manylinux_2_28_aarch64.whl": "1.0",
    "demo-1.10-py3-none-any.whl": "1.10",
}


def written(folder: Path, wheels: list[tuple[PythonArtifact, Path]]) -> Path:
    """Write the index of some wheels; return its folder."""
    places = {described.sha256: path for described, path in wheels}

    def place(sha256: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(places[sha256], path)

    tree.write(folder / "pypi", [described for described, _ in wheels], place)
    return folder / "pypi"


def made(folder: Path, filename: str, version: str, name: str = "demo") -> tuple[PythonArtifact, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / filename
    # the body makes the contents differ, as those of real wheels do
    wheel(folder, name, version, f"FILE = {filename!r}\n").rename(path)
    return artifact(path, PythonArtifact, name, version), path


def test_one_page_of_a_project_lists_every_python_and_machine(tmp_path: Path) -> None:
    wheels = [made(tmp_path / "made", filename, version) for filename, version in WHEELS.items()]
    folder = written(tmp_path, wheels)
    page = json.loads((folder / "simple/demo/index.json").read_text())
    assert {file["filename"] for file in page["files"]} == set(WHEELS)
    assert set(page["versions"]) == {"1.0", "1.10"}
    hashes = {file["filename"]: file["hashes"]["sha256"] for file in page["files"]}
    assert hashes == {described.filename: described.sha256 for described, _ in wheels}
    html = (folder / "simple/demo/index.html").read_text()
    assert all(f">{filename}</a>" in html for filename in WHEELS)
    assert {path.name for path in (folder / "packages").glob("*.metadata")} == {f"{name}.metadata" for name in WHEELS}


def test_a_file_that_two_targets_share_is_listed_once(tmp_path: Path) -> None:
    shared = made(tmp_path / "made", "demo-1.10-py3-none-any.whl", "1.10")
    page = json.loads((written(tmp_path, [shared, shared]) / "simple/demo/index.json").read_text())
    assert len(page["files"]) == 1


def test_projects_stand_under_their_normal_name(tmp_path: Path) -> None:
    folder = written(tmp_path, [made(tmp_path / "made", "My_Demo-1.0-py3-none-any.whl", "1.0", "My.Demo")])
    assert [path.name for path in (folder / "simple").iterdir() if path.is_dir()] == ["my-demo"]


def test_two_contents_under_one_file_name_are_refused(tmp_path: Path) -> None:
    one = made(tmp_path / "one", "demo-1.0-py3-none-any.whl", "1.0")
    other = made(tmp_path / "other", "demo-1.0-py3-none-any.whl", "1.0", "demos")
    with pytest.raises(ConflictError, match="two different files"):
        written(tmp_path, [one, other])


def test_what_is_no_wheel_is_named(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"no archive")
    with pytest.raises(IntegrityError, match=r"demo-1\.0-py3-none-any\.whl: not a wheel"):
        written(tmp_path, [(artifact(path, PythonArtifact, "demo"), path)])
