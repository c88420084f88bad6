"""Checks of targets: what of them stands between a bundle and its publication."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.errors import Problem
from reservoir.artifacts.kind import AGAIN, too_long
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord
from reservoir.manifest.model import MACHINES


def check(bundles: Sequence[Bundle]) -> Iterator[Problem]:
    """Yield each release that is too long for a folder, and each architecture that no repository is made for."""
    for bundle in bundles:
        for target in bundle.targets:
            yield from _faults(target)


def _faults(target: TargetRecord) -> Iterator[Problem]:
    # the longest names that are made of them, for apt and for dnf
    machine = MACHINES.get(target.arch, "")
    names = {"debian": f"{target.release}-{target.arch}.pref", "rpm": f"rpm-{target.release}-{machine}.asc"}
    if reason := too_long(names[target.os]):
        yield Problem(f"target {target.name}: release", reason, "give it a shorter one in the manifest")
    if target.os == "rpm" and target.arch not in MACHINES:
        reason = f"there are RPM repositories for {' and '.join(MACHINES)}, and none for {target.arch[:60]}"
        yield Problem(f"target {target.name}: arch", reason, AGAIN)
