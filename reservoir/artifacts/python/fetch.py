"""The download of wheels."""

from __future__ import annotations

from collections.abc import Sequence

from reservoir.artifacts.kind import Order
from reservoir.artifacts.python import sdists
from reservoir.contents.artifact import PythonArtifact


def fetch(order: Order, missing: Sequence[PythonArtifact]) -> None:
    """Bring wheels into the cache; those of local projects are in no lock (see `projects`)."""
    built = {one.wheel.sha256: one for one in order.locked.sdists}
    order.download([one for one in missing if one.sha256 not in built])
    for one in missing:
        if one.sha256 in built:
            sdists.again(order, built[one.sha256])
