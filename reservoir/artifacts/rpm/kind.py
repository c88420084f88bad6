"""RPM packages, and what dnf needs beside them, as a kind of artifact."""

from __future__ import annotations

from reservoir.artifacts.rpm.check import check
from reservoir.artifacts.rpm.describe import describe
from reservoir.artifacts.rpm.fetch import fetch
from reservoir.artifacts.rpm.publish import publish
from reservoir.artifacts.rpm.resolve import resolve
from reservoir.contents.artifact import RpmArtifact, RpmPart

__all__ = ["check", "describe", "fetch", "models", "publish", "resolve"]

models = (RpmArtifact, RpmPart)
