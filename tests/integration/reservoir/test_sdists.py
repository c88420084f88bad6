"""Wheels that are built of sources where a manifest says so, by real uv, without a network."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.reservoir.conftest import penstock
from tests.unit.reservoir.parts import wheel

# a build system that lies in the sources: what it sees goes into the wheel
BACKEND = """
import os, socket, zipfile

def build_wheel(folder, settings=None, metadata=None):
    NEEDED
    seen = f"LINKS = {[name for _, name in socket.if_nameindex()]}\\nSECRET = {os.environ.get('SECRET')!r}\\n"
    name = "only_sources-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        info = "only_sources-1.0.dist-info"
        for path, text in (
            ("only_sources.py", seen),
            (f"{info}/METADATA", "Metadata-Version: 2.1\\nName: only-sources\\nVersion: 1.0\\nRequires-Dist: other\\n"),
            (f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"),
            (f"{info}/RECORD", ""),
        ):
            wheel.writestr(zipfile.ZipInfo(path), text + os.environ.get("DRIFT", "") * path.endswith(".py"))
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def sources(folder: Path, needed: str = "pass") -> dict[str, Any]:
    """Sources of a package that has no wheel; return what a manifest says of them."""
    path = folder / "only_sources-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        files = {
            "PKG-INFO": "Metadata-Version: 2.1\nName: only-sources\nVersion: 1.0\n",
            "pyproject.toml": PROJECT,
            "backend.py": BACKEND.replace("NEEDED", needed),
        }
        for name, text in files.items():
            member = tarfile.TarInfo(f"only_sources-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return {"url": path.as_uri(), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


class Workshop:
    """A manifest that wants what has no wheel; its index is a folder."""

    def __init__(self, folder: Path, sdist: dict[str, Any]) -> None:
        self.manifest = folder / "built.yml"
        (folder / "index").mkdir()
        for name in ("other", "tool"):
            wheel(folder / "index", name)
        self.content: dict[str, Any] = {
            "schema": 1,
            "name": "built",
            "version": "1.0",
            "targets": [{"name": "debian12", "release": "bookworm", "python": "3.11"}],
            "python": {"requirements": ["only-sources"], "sdists": [sdist] if sdist else []},
        }
        self.manifest.write_text(yaml.safe_dump(self.content))
        self.environment = {
            "PENSTOCK_CACHE": str(folder / "cache"),
            "PENSTOCK_SIGNING_KEY": str(folder / "maker.key"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(folder / "index"),
            "SECRET": "a password",
        }

    def lock(self, code: int = 0) -> str:
        return penstock("lock", self.manifest, environment=self.environment, code=code).stderr

    def locked(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manifest.with_suffix(".lock").read_text())
        return found

    def build(self, cache: Path, code: int = 0) -> str:
        words: list[str | Path] = ["build", self.manifest, "--output", cache.parent / "out", "--json"]
        environment = self.environment | {"PENSTOCK_CACHE": str(cache)}
        done = penstock(*words, environment=environment, code=code)
        return done.stderr if code else done.stdout


def test_sources_are_refused_unless_the_manifest_says_that_they_are_built(tmp_path: Path) -> None:
    sources(tmp_path)
    assert "no set of wheels" in Workshop(tmp_path, {}).lock(code=2)


def test_a_wheel_is_built_without_a_network_and_recorded(tmp_path: Path) -> None:
    sdist = sources(tmp_path, "import tool")
    workshop = Workshop(tmp_path, sdist | {"build": ["tool==1.0"]})
    workshop.lock()
    (record,) = workshop.locked()["sdists"]
    assert record["source"]["sha256"] == sdist["sha256"]
    assert [tool["filename"] for tool in record["tools"]] == ["tool-1.0-py3-none-any.whl"]
    artifacts = {one["name"]: one for one in workshop.locked()["artifacts"]}
    # what it requires is part of the closure
    assert artifacts.keys() == {"only-sources", "other"}
    made = artifacts["only-sources"]
    assert (made["origin"], made["sha256"]) == (f"built from {sdist['url']}", record["wheel"]["sha256"])
    # a machine that has nothing yet builds the same again
    for cache in (tmp_path / "cache", tmp_path / "other/cache"):
        bundle = Path(json.loads(workshop.build(cache))["bundle"])
    with zipfile.ZipFile(bundle / "blobs/sha256" / made["sha256"]) as built:
        assert built.read("only_sources.py").decode() == "LINKS = ['lo']\nSECRET = None\n"


@pytest.mark.parametrize(("needed", "reason"), [("import absent", "absent"), ("return 'none.whl'", "cannot be built")])
def test_what_cannot_be_built_says_why(tmp_path: Path, needed: str, reason: str) -> None:
    said = Workshop(tmp_path, sources(tmp_path, needed)).lock(code=2)
    assert "python.sdists[0]: only_sources-1.0.tar.gz cannot be built" in said
    assert reason in said


def test_a_machine_that_builds_another_wheel_is_refused(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, sources(tmp_path, "os.environ['DRIFT'] = os.urandom(8).hex()"))
    workshop.lock()
    said = workshop.build(tmp_path / "other/cache", code=7)
    assert "built here, it is another wheel than the locked one" in said
