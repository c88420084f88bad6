"""The names of files elsewhere."""

from __future__ import annotations

from reservoir.artifacts.kind import Description, Purl
from reservoir.contents.artifact import FileArtifact
from reservoir.contents.target import TargetRecord


def describe(artifact: FileArtifact, target: TargetRecord | None) -> Description:  # noqa: ARG001 - as every kind
    """Return what others call a file: its hash, as nobody else knows its name."""
    words = {"checksum": f"sha256:{artifact.sha256}"}
    return Description(Purl("generic", None, artifact.filename, artifact.version, words), "file")
