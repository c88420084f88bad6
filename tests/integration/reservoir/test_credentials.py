"""Package sources that ask for a user and a password: bundles are built from them, and nothing tells the password."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from reservoir.signing import ed25519
from tests.integration.reservoir.conftest import penstock
from tests.integration.reservoir.guarded import PASSWORD, WRITTEN, guarded, telling
from tests.integration.reservoir.repository import Repository
from tests.unit.reservoir.parts import wheel


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A server with a Python index, a Debian repository and a file; returns its port."""
    folder = tmp_path / "served"
    simple = folder / "simple/demo"
    simple.mkdir(parents=True)
    made = wheel(simple)
    (simple / "index.html").write_text(f'<a href="{made.name}">{made.name}</a>')
    repository = Repository(folder / "vendor")
    repository.add("tool", "1.0")
    repository.write()
    (tmp_path / "vendor.asc").write_bytes(repository.key_file.read_bytes())
    (folder / "notes.txt").write_text("notes")
    with guarded(folder) as number:
        yield number


def manifest(folder: Path, port: int, login: str) -> Path:
    """Write a manifest that takes a package of each kind from the server."""
    address = f"http://{login}@127.0.0.1:{port}"
    keys = {"keys": ["vendor.asc"], "suite": "bookworm", "components": ["main"]}
    path = folder / "manifest.yml"
    content = {
        "schema": 1,
        "name": "small",
        "version": "1.0",
        "targets": [{"name": "debian12", "release": "bookworm", "python": "3.11", "sources": ["vendor"]}],
        "sources": [{"name": "vendor", "kind": "debian", "url": f"{address}/vendor", **keys}],
        "python": {"requirements": ["demo"]},
        "debian": {"nodes": ["tool"]},
        "files": [
            {
                "name": "notes.txt",
                "url": f"{address}/notes.txt",
                "sha256": hashlib.sha256(b"notes").hexdigest(),
            }
        ],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def environment(folder: Path, port: int, login: str) -> dict[str, str]:
    if not (folder / "maker.key").exists():
        ed25519.new_key(folder / "maker.key")
    return {
        "PENSTOCK_CACHE": str(folder / "cache"),
        "PENSTOCK_SIGNING_KEY": str(folder / "maker.key"),
        "PIP_INDEX_URL": f"http://{login}@127.0.0.1:{port}/simple/",
        "PIP_EXTRA_INDEX_URL": "",
        "SOURCE_DATE_EPOCH": "1700000000",
    }


def test_a_bundle_is_built_and_neither_it_nor_its_lock_tells_the_password(tmp_path: Path, port: int) -> None:
    path = manifest(tmp_path, port, WRITTEN)
    environ = environment(tmp_path, port, WRITTEN)
    said = [penstock("lock", path, environment=environ)]
    lock = json.loads((tmp_path / "reservoir.lock").read_text())
    assert {a["kind"]: a["origin"].rpartition("/")[0] for a in lock["artifacts"]} == {
        "python": f"http://127.0.0.1:{port}/simple/demo",
        "debian": f"http://127.0.0.1:{port}/vendor/{_pool(lock)}",
        "file": f"http://127.0.0.1:{port}",
    }
    said.append(penstock("build", path, "--output", tmp_path / "out", environment=environ))
    assert telling(tmp_path / "reservoir.lock", tmp_path / "out", tmp_path / "cache") == []
    assert not any(word in run.stdout + run.stderr for run in said for word in (PASSWORD, "open%40sesame"))
    penstock("verify", next((tmp_path / "out").iterdir()), environment=environ)


def test_a_new_password_needs_no_new_lock(tmp_path: Path, port: int) -> None:
    path = manifest(tmp_path, port, WRITTEN)
    penstock("lock", path, environment=environment(tmp_path, port, WRITTEN))
    manifest(tmp_path, port, "ada:expired")
    refused = penstock(
        "build", path, "--output", tmp_path / "out", code=5, environment=environment(tmp_path, port, "ada:expired")
    )
    assert "401" in refused.stderr
    assert "expired" not in refused.stderr
    manifest(tmp_path, port, WRITTEN)
    penstock("build", path, "--output", tmp_path / "out", environment=environment(tmp_path, port, WRITTEN))


def _pool(lock: dict[str, list[dict[str, str]]]) -> str:
    (origin,) = [artifact["origin"] for artifact in lock["artifacts"] if artifact["kind"] == "debian"]
    return origin.partition("/vendor/")[2].rpartition("/")[0]
