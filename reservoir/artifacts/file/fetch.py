"""The download of files."""

from __future__ import annotations

from collections.abc import Sequence

from reservoir.artifacts.kind import Order
from reservoir.contents.artifact import FileArtifact


def fetch(order: Order, missing: Sequence[FileArtifact]) -> None:
    """Bring files into the cache."""
    order.download(missing)
