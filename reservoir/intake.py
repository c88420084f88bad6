"""Import: from a bundle on a carried disk into the site's store, all of it or nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from reservoir import bundle as bundles
from reservoir import files, settings, signing
from reservoir.cache import digest, flush, pieces, room_on
from reservoir.errors import ConflictError, IntegrityError, PenstockError, UnavailableError
from reservoir.model import Artifact, Bundle
from reservoir.progress import Progress, silent
from reservoir.store import Store, age
from reservoir.verify import Verified, check_blobs, open_bundle


@dataclass(frozen=True)
class Imported:
    """A bundle that the site holds now; `changed` is false where it held it before."""

    identity: str
    changed: bool


def take(
    folder: Path,
    root: Path,
    *,
    key: Ed25519PublicKey | None = None,
    allow_older: bool = False,
    progress: Progress = silent,
) -> Imported:
    """Import the bundle in `folder` into the store at `root`; what fails leaves the store as it was.

    The first import pins the bundle's key, or the one that the installer was given, or `key` where it is given; later
    bundles must be signed by the same one.
    Raises IntegrityError for a bundle that is not whole, ConflictError for one older than what the site holds,
    UnavailableError where there is no room.
    """
    store = Store(root)
    with store.changing():
        found = open_bundle(folder, key or expected_key(store))
        present = store.imported()
        if found.identity in present and _whole(store, found.bundle):
            _pin(store, found)
            return Imported(found.identity, changed=False)
        if not allow_older:
            _refuse_older(found.bundle, present, folder)
        incoming = store.incoming / found.identity
        _forget_others(store, incoming)
        _require_room(store, found.bundle, incoming)
        try:
            with room_on(root):
                _collect(found, folder, store, incoming, progress)
        except PenstockError:
            # an interruption leaves what was collected for the next run; a refusal leaves nothing
            shutil.rmtree(store.incoming)
            raise
        _commit(found, folder, store, incoming)
        return Imported(found.identity, changed=True)


def expected_key(store: Store) -> Ed25519PublicKey | None:
    """Return the key that this site's bundles are signed with, once it is known: by an import, or by the installer."""
    for path in (store.pinned_key, settings.installer_key()):
        if path.exists():
            return signing.read_public(path.read_bytes(), str(path))
    return None


def _pin(store: Store, found: Verified) -> None:
    """Remember the bundle's key as the one of this site."""
    pem = signing.encode_public(found.key)
    if not store.pinned_key.exists() or store.pinned_key.read_bytes() != pem:
        files.write(store.pinned_key, pem)


def _whole(store: Store, bundle: Bundle) -> bool:
    """Say whether every blob of a bundle is in the store in full length."""
    return all(_has(store, sha256, size) for sha256, size in bundle.sizes().items())


def _has(store: Store, sha256: str, size: int) -> bool:
    path = store.blobs / sha256
    return path.is_file() and path.stat().st_size == size


def _refuse_older(bundle: Bundle, present: dict[str, Bundle], folder: Path) -> None:
    """Raise ConflictError where the site holds a newer bundle of that name."""
    newer = [old for old in present.values() if old.name == bundle.name and age(old)[0] > age(bundle)[0]]
    if newer:
        raise ConflictError(
            f"the site holds {bundle.name} {max(newer, key=age).version}, which is newer than {bundle.version}",
            where=str(folder),
            cure="import a newer bundle, or say --allow-older",
        )


def _forget_others(store: Store, incoming: Path) -> None:
    """Delete what interrupted imports of other bundles left."""
    for old in store.incoming.glob("*"):
        if old != incoming:
            shutil.rmtree(old)


def _require_room(store: Store, bundle: Bundle, incoming: Path) -> None:
    """Raise UnavailableError where the blobs that are still missing do not fit."""
    sizes = bundle.sizes().items()
    missing = sum(size for sha256, size in sizes if not _has(store, sha256, size) and not (incoming / sha256).is_file())
    free = shutil.disk_usage(store.root).free
    if missing > free:
        raise UnavailableError(
            f"the bundle needs {missing / 1e6:.0f} MB, only {free / 1e6:.0f} MB are free",
            where=str(store.root),
            cure="free some space, then run it again",
        )


def _collect(found: Verified, folder: Path, store: Store, incoming: Path, progress: Progress) -> None:
    """Copy what the store lacks beside it, and check every blob of the bundle on the way."""
    incoming.mkdir(parents=True, exist_ok=True)

    def copy(artifact: Artifact, path: Path) -> str:
        copied = incoming / artifact.sha256
        if _has(store, artifact.sha256, artifact.size):
            return digest(path)
        if copied.is_file() and digest(copied) == artifact.sha256:
            return digest(path)
        return _copy(path, copied)

    problems = check_blobs(found.bundle, folder, copy, progress, "import")
    if problems:
        raise IntegrityError.of(problems)


def _copy(source: Path, destination: Path) -> str:
    """Copy a file, wait until it is on the disk, give it its name at the end; return the hash of what was read."""
    beside = destination.with_suffix(".partial")
    found = hashlib.sha256()
    with beside.open("wb") as file:
        for piece in pieces(source):
            found.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    beside.chmod(0o444)
    beside.replace(destination)
    return found.hexdigest()


def _commit(found: Verified, folder: Path, store: Store, incoming: Path) -> None:
    """Move the blobs into the store and then the bundle's list, which makes it count."""
    for sha256 in found.bundle.sizes():
        if (incoming / sha256).is_file():
            (incoming / sha256).replace(store.blobs / sha256)
    record = store.bundles / f".{found.identity}.new"
    shutil.rmtree(record, ignore_errors=True)
    record.mkdir()
    (record / bundles.LIST).write_bytes(found.content)
    shutil.copyfile(folder / bundles.SIGNATURE, record / bundles.SIGNATURE)
    flush([*record.iterdir(), record, store.blobs])
    final = store.bundles / found.identity
    shutil.rmtree(final, ignore_errors=True)
    record.replace(final)
    _pin(store, found)
    flush([store.bundles, store.keys])
    shutil.rmtree(store.incoming)
