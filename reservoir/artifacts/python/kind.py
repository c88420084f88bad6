"""Python packages as a kind of artifact."""

from __future__ import annotations

from reservoir.artifacts.python.check import check
from reservoir.artifacts.python.describe import describe
from reservoir.artifacts.python.fetch import fetch
from reservoir.artifacts.python.publish import publish
from reservoir.artifacts.python.resolve import resolve
from reservoir.contents.artifact import PythonArtifact

__all__ = ["check", "describe", "fetch", "models", "publish", "resolve"]

models = (PythonArtifact,)
