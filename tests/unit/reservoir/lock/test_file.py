from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.errors import ConflictError, InputError
from reservoir.bundle import build
from reservoir.download.cache import Cache
from reservoir.lock.file import matches, read_lock, require_match, write_lock
from reservoir.lock.make import make
from reservoir.settings import Settings
from tests.unit.reservoir.parts import ARTIFACT, MANIFEST


def test_a_lock_of_another_manifest_is_refused(manifest: Path, locked: Path, tmp_path: Path) -> None:
    manifest.write_text(MANIFEST.replace("[jq]", "[jq, bash]"))
    assert not matches(locked, manifest)
    settings = Settings(cache=tmp_path / "cache", signing_key=tmp_path / "signing.key", timestamp=0)
    with pytest.raises(ConflictError, match=r"the lock does not match the manifest.*penstock reservoir lock"):
        build.make(manifest, locked, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()
    assert not settings.signing_key.exists()


def test_a_lock_follows_what_the_local_project_requires(manifest: Path, tmp_path: Path) -> None:
    project = '[project]\nname = "demo"\ndependencies = ["rich"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    manifest.write_text(MANIFEST.replace("  requirements", "  projects: [{path: .}]\n  requirements"))
    path = tmp_path / "reservoir.lock"
    write_lock(make(manifest, Cache(tmp_path / "cache")), path)
    assert matches(path, manifest)
    (tmp_path / "pyproject.toml").write_text(project.replace("rich", "poor"))
    with pytest.raises(ConflictError, match="does not match what the project demo requires now"):
        require_match(read_lock(path), manifest, path)


def test_a_damaged_lock_is_refused_with_its_line(locked: Path) -> None:
    content = json.loads(locked.read_text())
    content["artifacts"][1]["size"] = "many"
    content["surprise"] = 1
    locked.write_text(json.dumps(content, indent=1))
    with pytest.raises(InputError) as caught:
        read_lock(locked)
    assert "artifacts[1].size" in str(caught.value)
    assert "surprise: unknown key" in str(caught.value)
    assert f"{locked}:" in str(caught.value)


@pytest.mark.parametrize("text", ["{", "", "[]"])
def test_what_is_no_lock_is_refused(locked: Path, text: str) -> None:
    locked.write_text(text)
    with pytest.raises(InputError):
        read_lock(locked)


def test_a_missing_lock_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="penstock reservoir lock"):
        read_lock(tmp_path / "reservoir.lock")


def test_a_file_name_in_a_lock_cannot_leave_its_folder(locked: Path) -> None:
    content = json.loads(locked.read_text())["artifacts"][0]
    for name in ("../evil", "/etc/passwd", ".hidden", "a/b"):
        with pytest.raises(ValueError, match="filename"):
            ARTIFACT.validate_python(content | {"filename": name})
