"""The names of wheels elsewhere."""

from __future__ import annotations

from reservoir.artifacts.kind import Description, Purl
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.target import TargetRecord

ECOSYSTEM = "PyPI"


def describe(artifact: PythonArtifact, target: TargetRecord | None) -> Description:  # noqa: ARG001 - as every kind
    """Return what others call a wheel, which is the same for every target."""
    name, version = artifact.name, artifact.version
    return Description(Purl("pypi", None, name, version, {}), "library", [(name, version)], ECOSYSTEM)
