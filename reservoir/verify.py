"""Is a bundle whole? Signature, every hash, nothing missing, nothing extra; in constant memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from reservoir import bundle as bundles
from reservoir import signing
from reservoir.bundle import BLOBS, CURE, INSTALLER, LIST, PUBLIC_KEY, SIGNATURE
from reservoir.cache import digest
from reservoir.errors import IntegrityError, Problem
from reservoir.model import Artifact, Bundle
from reservoir.progress import Progress, silent

# hashing runs outside of Python's lock, so a few threads use a few cores; each holds one buffer
THREADS = min(4, os.cpu_count() or 1)
BESIDE_BLOBS = {LIST, SIGNATURE, PUBLIC_KEY, *INSTALLER, BLOBS.parts[0]}


@dataclass(frozen=True)
class Verified:
    """A bundle that is whole; `content` are the exact bytes of its list, `pinned` says that the caller knew the key."""

    bundle: Bundle
    content: bytes
    key: Ed25519PublicKey
    pinned: bool

    @property
    def identity(self) -> str:
        """Return the name of this very bundle."""
        return bundles.identity(self.bundle, self.content)


def verify(folder: Path, key: Ed25519PublicKey | None = None, progress: Progress = silent) -> Verified:
    """Check everything in a bundle; raises one IntegrityError that lists all that is wrong.

    Without `key` the key that travels with the bundle is taken: then the bundle is whole, but anyone may have made it.
    """
    found = open_bundle(folder, key)
    problems = check_blobs(found.bundle, folder, digest_of=lambda _, path: digest(path), progress=progress)
    if problems:
        raise IntegrityError.of(problems)
    return found


def open_bundle(folder: Path, key: Ed25519PublicKey | None = None) -> Verified:
    """Check the signature of a bundle and which files it has, but not yet what is in the blobs."""
    bundle, content, used = bundles.read_signed(folder, key)
    problems = [*_unlisted(bundle, folder), *_installer(bundle, folder)]
    if problems:
        raise IntegrityError.of(problems)
    return Verified(bundle, content, used, pinned=key is not None)


def check_blobs(
    bundle: Bundle, folder: Path, digest_of: Callable[[Artifact, Path], str], progress: Progress, step: str = "verify"
) -> list[Problem]:
    """Return a problem for every blob that is not what the list says; `digest_of` reads one and returns its hash."""
    guard = threading.Lock()
    once = {artifact.sha256: artifact for artifact in bundle.artifacts}
    # the biggest first, so that no thread is left with one of them at the end
    blobs = sorted(once.values(), key=lambda artifact: -artifact.size)
    total = sum(artifact.size for artifact in blobs)
    done = 0

    def check(artifact: Artifact) -> Problem | None:
        nonlocal done
        path = folder / BLOBS / artifact.sha256
        found = digest_of(artifact, path)
        with guard:
            done += artifact.size
            progress(step, done, total)
        if found == artifact.sha256:
            return None
        return Problem(str(path), f"{artifact.filename} was changed: its sha256 is {found}", CURE)

    return [problem for problem in in_threads(check, blobs) if problem]


def in_threads(act: Callable[[Artifact], Problem | None], artifacts: Iterable[Artifact]) -> list[Problem | None]:
    """Act on every artifact in a few threads; an exception stops what has not started yet."""
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(act, artifact) for artifact in artifacts]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def fingerprint(found: Verified) -> str:
    """Return the fingerprint of the key that a bundle is signed with."""
    return signing.fingerprint(found.key)


def _unlisted(bundle: Bundle, folder: Path) -> list[Problem]:
    """Return a problem for every file that is missing, has another length, or is not in the list."""
    names = {artifact.sha256: artifact.filename for artifact in bundle.artifacts}
    present = {path.name: path for path in (folder / BLOBS).glob("*")}
    problems = [
        Problem(str(folder / BLOBS / sha256), f"{names[sha256]} is missing", CURE)
        for sha256 in sorted(names.keys() - present.keys())
    ]
    extra = [present[name] for name in present.keys() - names.keys()]
    extra += [path for path in folder.iterdir() if path.name not in BESIDE_BLOBS]
    extra += [path for path in (folder / BLOBS.parts[0]).glob("*") if path.name != BLOBS.parts[1]]
    problems += [Problem(str(path), "is not in the bundle's list", CURE) for path in sorted(extra)]
    for sha256, size in bundle.sizes().items():
        path = present.get(sha256)
        if path is None:
            continue
        if not path.is_file() or path.is_symlink():
            problems.append(Problem(str(path), f"{names[sha256]} is not a file", CURE))
        elif path.stat().st_size != size:
            found = path.stat().st_size
            problems.append(Problem(str(path), f"{names[sha256]} has {found} bytes, not {size}", CURE))
    return problems


def _installer(bundle: Bundle, folder: Path) -> list[Problem]:
    """Return a problem for each file of the installer that is not the signed one."""
    problems = []
    for name, sha256 in bundle.installer.items():
        path = folder / name
        if not path.is_file():
            problems.append(Problem(str(path), "is missing", CURE))
        elif digest(path) != sha256:
            problems.append(Problem(str(path), "was changed", CURE))
    return problems
