"""Debian packages as a kind of artifact."""

from __future__ import annotations

from reservoir.artifacts.debian.check import check
from reservoir.artifacts.debian.describe import describe
from reservoir.artifacts.debian.fetch import fetch
from reservoir.artifacts.debian.publish import publish
from reservoir.artifacts.debian.resolve import resolve
from reservoir.contents.artifact import DebianArtifact

__all__ = ["check", "describe", "fetch", "models", "publish", "resolve"]

models = (DebianArtifact,)
