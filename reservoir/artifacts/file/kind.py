"""Files that are served as they are, as a kind of artifact."""

from __future__ import annotations

from reservoir.artifacts.file.check import check
from reservoir.artifacts.file.describe import describe
from reservoir.artifacts.file.fetch import fetch
from reservoir.artifacts.file.publish import publish
from reservoir.artifacts.file.resolve import resolve
from reservoir.contents.artifact import FileArtifact

__all__ = ["check", "describe", "fetch", "models", "publish", "resolve"]

models = (FileArtifact,)
