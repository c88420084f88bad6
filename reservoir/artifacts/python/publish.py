"""A Python package index of static files: the simple API as HTML and JSON (PEP 503, 691), with metadata (PEP 658)."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Callable, Iterable
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename

from common.errors import ConflictError, IntegrityError
from reservoir.artifacts.kind import AGAIN, Staging
from reservoir.artifacts.python import core_metadata
from reservoir.artifacts.python.check import chosen, described
from reservoir.contents.artifact import PythonArtifact

META = {"api-version": "1.1"}


def publish(staging: Staging) -> None:
    """Write the index of every bundle's wheels below `pypi`."""
    staging.progress("publish Python packages")
    artifacts = [wheel for bundle in staging.bundles for wheel in bundle.of_kind(PythonArtifact)]
    write(staging.tree / "pypi", artifacts, staging.place)


def write(tree: Path, artifacts: Iterable[PythonArtifact], place: Callable[[str, Path], None]) -> None:
    """Write the index below `tree`; `place(sha256, path)` puts a file at a path.

    Raises ConflictError where two different files have one name.
    """
    wheels, problems = chosen(artifacts)
    if problems:
        raise ConflictError.of(problems)
    projects: dict[str, list[dict[str, Any]]] = {}
    for filename, artifact in sorted(wheels.items()):
        path = tree / "packages" / filename
        place(artifact.sha256, path)
        projects.setdefault(canonicalize_name(artifact.name), []).append(_described(path, artifact))
    simple = tree / "simple"
    for name, files in projects.items():
        _write_project(simple / name, name, files)
    links = "".join(f'<a href="{name}/">{name}</a><br>\n' for name in sorted(projects))
    (simple).mkdir(parents=True, exist_ok=True)
    (simple / "index.html").write_text(_page("Simple index", links))
    listed = [{"name": name} for name in sorted(projects)]
    (simple / "index.json").write_text(json.dumps({"meta": META, "projects": listed}))


def _described(path: Path, artifact: PythonArtifact) -> dict[str, Any]:
    """Write the wheel's metadata beside it and return its entry in the index."""
    metadata = _metadata(path)
    path.with_name(described(path.name)).write_bytes(metadata)
    entry: dict[str, Any] = {
        "filename": path.name,
        "url": f"../../packages/{path.name}",
        "hashes": {"sha256": artifact.sha256},
        "core-metadata": {"sha256": hashlib.sha256(metadata).hexdigest()},
        "size": artifact.size,
    }
    if requires := BytesHeaderParser().parsebytes(metadata).get("Requires-Python"):
        entry["requires-python"] = str(requires)
    return entry


def _metadata(path: Path) -> bytes:
    """Return the core metadata in a wheel; raises IntegrityError where there is none."""
    try:
        return core_metadata.read_named(path, path.name)
    except ValueError as error:
        raise IntegrityError(f"not a wheel: {error}", where=path.name, hint=AGAIN) from error


def _write_project(folder: Path, name: str, files: list[dict[str, Any]]) -> None:
    """Write both pages of one project."""
    folder.mkdir(parents=True)
    links = ""
    for file in files:
        digest = file["core-metadata"]["sha256"]
        marks = f'data-core-metadata="sha256={digest}" data-dist-info-metadata="sha256={digest}"'
        if "requires-python" in file:
            marks += f' data-requires-python="{html.escape(file["requires-python"])}"'
        links += f'<a href="{file["url"]}#sha256={file["hashes"]["sha256"]}" {marks}>{file["filename"]}</a><br>\n'
    (folder / "index.html").write_text(_page(f"Links for {name}", links))
    versions = sorted({str(parse_wheel_filename(file["filename"])[1]) for file in files})
    (folder / "index.json").write_text(json.dumps({"meta": META, "name": name, "versions": versions, "files": files}))


def _page(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.1">'
        f"<title>{title}</title></head><body>\n{body}</body></html>\n"
    )
