"""The download of wheels."""

from __future__ import annotations

from collections.abc import Sequence

from reservoir.artifacts.kind import Order
from reservoir.contents.artifact import PythonArtifact


def fetch(order: Order, missing: Sequence[PythonArtifact]) -> None:
    """Bring wheels into the cache; those of local projects are in no lock (see `projects`)."""
    order.download(missing)
