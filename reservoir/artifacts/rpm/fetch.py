"""The download of RPM packages, and the check of their signatures."""

from __future__ import annotations

from collections.abc import Sequence

from reservoir.artifacts.kind import Order
from reservoir.artifacts.rpm import signature
from reservoir.contents.artifact import RpmArtifact, RpmPart, of_kind


def fetch(order: Order, missing: Sequence[RpmArtifact | RpmPart]) -> None:
    """Bring packages into the cache, and the parts that the lock itself carries; check who signed the packages."""
    for part in of_kind(missing, RpmPart):
        order.cache.keep(part.metadata.text.encode())
        order.note(part.size)
    order.download(of_kind(missing, RpmArtifact))
    signature.check(order.locked, order.cache)
