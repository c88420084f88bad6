"""The RPM part of a lock: what is in every group of every target."""

from __future__ import annotations

from functools import partial

from common.errors import UnavailableError
from reservoir.artifacts.kind import TARGETS, Resolved, Resolving
from reservoir.download.threads import in_threads


def resolve(resolving: Resolving) -> Resolved:
    """Return the closure of every group of RPM packages, and what dnf needs beside them."""
    targets = [target for target in resolving.manifest.targets if resolving.manifest.rpm_groups(target)]
    if not targets:
        return Resolved()
    # asked here, as all targets begin at once and it is asked once only
    resolving.indexes()
    try:
        # a site, which locks nothing, does without what it needs
        from reservoir.artifacts.rpm import closure
    except ImportError as error:
        raise UnavailableError(f"{error.name} is not installed", where="rpm", hint="install penstock[build]") from error
    return Resolved.of(in_threads(partial(closure.of_target, resolving), targets, TARGETS))
