"""Bundles that can be published together, where not all can: who is at fault is left out and named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from common.errors import Problem
from reservoir.artifacts import kinds
from reservoir.contents.bundle import Bundle
from reservoir.intake.store import Store
from reservoir.intake.store import age as age_of

MISSING = "carry its bundle here again, or a delta for a new receipt"


def choose(store: Store, served: list[str]) -> tuple[dict[str, Bundle], list[Problem]]:
    """Return the newest bundle of each name that can be published with the others, and why newer ones cannot.

    What is `served` already goes before what is not, and what is older before what is newer: who comes last and
    contradicts the others is at fault. Every problem names its bundle.
    """
    chosen: dict[str, Bundle] = {}
    faults: list[Problem] = []

    def order(name: str) -> tuple[bool, object, str]:
        identity, bundle = candidates[name][0]
        return identity not in served, age_of(bundle)[1], identity

    candidates = store.candidates()
    for name in sorted(candidates, key=order):
        for identity, bundle in candidates[name]:
            found = [*_problems(store, bundle)] or kinds.check([*chosen.values(), bundle], lambda _: None)
            faults += [Problem(f"{identity}: {one.where}", one.reason, one.hint) for one in found]
            if not found:
                chosen[identity] = bundle
                break
    return dict(sorted(chosen.items())), faults


def _problems(store: Store, bundle: Bundle) -> Iterator[Problem]:
    """Yield what is wrong with one bundle alone."""
    names = {artifact.sha256: artifact.filename for artifact in bundle.artifacts}
    lost = [blob for blob in names if not (store.blobs / blob).is_file()]
    yield from (Problem(names[blob], f"{blob} is missing at the site", MISSING) for blob in lost)

    def find(blob: str) -> Path | None:
        return store.blobs / blob if blob not in lost else None

    yield from kinds.check([bundle], find)
