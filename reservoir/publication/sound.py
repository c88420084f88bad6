"""Bundles that can be published together, where not all can: who is at fault is left out and named."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from common.errors import ConflictError, IntegrityError, PenstockError, Problem
from common.progress import silent
from reservoir.artifacts import kinds
from reservoir.artifacts.kind import AGAIN
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import space_on
from reservoir.intake.store import Store
from reservoir.intake.store import age as age_of

KEPT = (
    "what is served stays; import a newer bundle of that name, or, to publish without it, run "
    "`penstock reservoir remove --withdraw` with its name"
)
MISSING = "carry its bundle here again, or a delta for a new receipt"
# what a system says of names and of what lies at a place; of anything else its disk is the cause, and no bundle
NAMES = {None, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EILSEQ}


def of_a_bundle(error: Exception, root: Path) -> bool:
    """Say whether a publication may have failed by one of its bundles, and not by the policy, the disk or the user.

    What is missing elsewhere than in the store at `root`, such as a program, is no bundle's.
    """
    if isinstance(error, PenstockError):
        return isinstance(error, (ConflictError, IntegrityError))
    if isinstance(error, FileNotFoundError):
        return isinstance(error.filename, str | os.PathLike) and Path(error.filename).is_relative_to(root)
    return not isinstance(error, (OSError, MemoryError)) or (isinstance(error, OSError) and error.errno in NAMES)


def choose(
    store: Store, served: list[str], refused: Callable[[str], list[Problem]], tried: list[str]
) -> tuple[dict[str, Bundle], list[Problem]]:
    """Return the newest bundle of each name that can be published with the others, and why newer ones cannot.

    What is `served` already goes before what is not, and what is older before what is newer: who comes last and
    contradicts the others is at fault. What the policy has `refused` is passed over, and what was not `tried` is
    published alone, for a trial. Every problem names its bundle.
    Raises IntegrityError where a trial fails by what is served: that may be our fault as well, and takes nothing away.
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
            found = found or refused(identity)
            if not found and identity not in tried:
                found = _trial(store, bundle)
                if found and identity in served:
                    raise IntegrityError.of([*faults, *(_of(identity, replace(one, hint=KEPT)) for one in found)])
            faults += [_of(identity, one) for one in found]
            if not found:
                chosen[identity] = bundle
                break
    return dict(sorted(chosen.items())), faults


def _of(identity: str, problem: Problem) -> Problem:
    where = "policy" if problem.where == identity else problem.where
    return Problem(f"{identity}: {where}", problem.reason, problem.hint)


def _trial(store: Store, bundle: Bundle) -> list[Problem]:
    """Return why a bundle cannot be published, as a publication of it alone shows, whatever the checks missed."""
    tree = store.publications / ".trial.new"
    shutil.rmtree(tree, ignore_errors=True)
    try:
        with space_on(store.root, tree):
            kinds.publish([bundle], tree, store.blobs, store.apt_key(), silent)
    except Exception as error:
        if not of_a_bundle(error, store.root):
            raise
        if isinstance(error, PenstockError):
            return list(error.problems)
        return [Problem("publication", f"it fails: {type(error).__name__}: {error}", AGAIN)]
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return []


def _problems(store: Store, bundle: Bundle) -> Iterator[Problem]:
    """Yield what is wrong with one bundle alone."""
    names = {artifact.sha256: artifact.filename for artifact in bundle.artifacts}
    lost = [blob for blob in names if not (store.blobs / blob).is_file()]
    yield from (Problem(names[blob], f"{blob} is missing at the site", MISSING) for blob in lost)

    def find(blob: str) -> Path | None:
        return store.blobs / blob if blob not in lost else None

    yield from kinds.check([bundle], find)
