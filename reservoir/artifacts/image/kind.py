"""Container images and their parts as a kind of artifact."""

from __future__ import annotations

from reservoir.artifacts.image.check import check
from reservoir.artifacts.image.describe import describe
from reservoir.artifacts.image.fetch import fetch
from reservoir.artifacts.image.publish import publish
from reservoir.artifacts.image.resolve import resolve
from reservoir.contents.artifact import ImageArtifact, ImagePart

__all__ = ["check", "describe", "fetch", "models", "publish", "resolve"]

models = (ImageArtifact, ImagePart)
