"""The folder of files."""

from __future__ import annotations

from common.errors import ConflictError
from reservoir.artifacts.kind import Staging
from reservoir.contents.artifact import FileArtifact


def publish(staging: Staging) -> None:
    """Put every bundle's files into `files`; raises ConflictError where two different ones have one name."""
    staging.progress("publish files")
    folder = staging.tree / "files"
    folder.mkdir()
    found: dict[str, FileArtifact] = {}
    for file in (file for bundle in staging.bundles for file in bundle.of_kind(FileArtifact)):
        if found.setdefault(file.filename, file).sha256 != file.sha256:
            raise ConflictError(
                "two different files have one name", where=file.filename, hint="rename one in its bundle"
            )
    for name, file in sorted(found.items()):
        staging.place(file.sha256, folder / name)
