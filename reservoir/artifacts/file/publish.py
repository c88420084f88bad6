"""The folder of files."""

from __future__ import annotations

from common.errors import ConflictError
from reservoir.artifacts.file.check import chosen
from reservoir.artifacts.kind import Staging


def publish(staging: Staging) -> None:
    """Put every bundle's files into `files`; raises ConflictError where two different ones have one name."""
    staging.progress("publish files")
    folder = staging.tree / "files"
    folder.mkdir()
    found, problems = chosen(staging.bundles)
    if problems:
        raise ConflictError.of(problems)
    for name, file in sorted(found.items()):
        staging.place(file.sha256, folder / name)
