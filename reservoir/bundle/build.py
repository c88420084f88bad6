"""Build of a bundle from a manifest and its lock: what is missing is fetched, wheels and images made, all is signed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache as cached
from functools import partial
from hashlib import sha256
from pathlib import Path

import httpx

from common.errors import IntegrityError, PenstockError
from common.progress import Progress, counter, silent
from reservoir.artifacts.image import built
from reservoir.artifacts.kind import DOWNLOADS, Order
from reservoir.artifacts.kinds import KINDS
from reservoir.artifacts.python import projects
from reservoir.artifacts.rpm import source as rpm_source
from reservoir.bundle import attachments, bundles, expiry, rehearsal
from reservoir.contents.artifact import ImageArtifact, ImagePart, of_kind
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord
from reservoir.download import fetch, indexes
from reservoir.download.cache import Cache, digest
from reservoir.download.indexes import Indexes
from reservoir.download.threads import in_threads
from reservoir.lock.file import read_lock, require_match
from reservoir.manifest import credentials
from reservoir.manifest.model import Manifest
from reservoir.settings import Settings
from reservoir.signing import ed25519, keychain


@dataclass(frozen=True)
class Built:
    """A finished bundle; `changed` is false where the very same one was there already."""

    folder: Path
    bundle: Bundle
    changed: bool
    new_key: bool


def make(manifest_path: Path, lock_path: Path, below: Path, settings: Settings, progress: Progress = silent) -> Built:
    """Build the bundle of a manifest into the folder `below`.

    Raises ConflictError where the lock does not match the manifest, and the errors of what it fetches and builds;
    a folder under the final name is always whole.
    """
    locked = read_lock(lock_path)
    wanted = require_match(locked, manifest_path, lock_path)
    cache = Cache(settings.cache)
    with cache.alone(progress):
        new_key = not settings.signing_key.exists()
        key = ed25519.new_key(settings.signing_key) if new_key else ed25519.read_key(settings.signing_key)
        chain = keychain.of_key(settings.signing_key, key)
        # asked once, and only by what needs it
        known = cached(indexes.machine)
        client = partial(_client, wanted, known)
        order = Order(wanted, locked, manifest_path.parent, cache, progress, known, client)
        bundle = _bundle(order, settings.timestamp)
        _check_blobs(bundle, cache, progress)
        progress("write the bill of materials")
        texts = attachments.make(bundle, locked.images, cache, wanted.security, order.folder)
        hashes = {name: sha256(text).hexdigest() for name, text in texts.items()}
        bundle = bundle.model_copy(update={"attachments": hashes})
        final = bundles.directory(bundle, below)
        if (same := _same(final, bundle, key)) is not None:
            return Built(final, same, changed=False, new_key=new_key)
        rehearsal.rehearse(bundle, cache, progress)
        progress("write the bundle")
        blobs = [cache.path(blob) for blob in bundle.sizes()]
        folder = bundles.assemble(bundle, blobs, key, below, texts, chain=chain)
        return Built(folder, bundle, changed=True, new_key=new_key)


def _bundle(order: Order, timestamp: int) -> Bundle:
    """Bring every part into the cache and return the bundle's list."""
    wanted, locked = order.manifest, order.locked
    created = datetime.fromtimestamp(timestamp, UTC)
    _download(order)
    made = [*projects.make(order), *built.make(order)]
    fetched = [a.model_copy(update={"origin": credentials.public(a.origin)}) for a in locked.artifacts]
    return Bundle(
        name=wanted.name,
        version=wanted.version,
        created=f"{created:%Y-%m-%dT%H:%M:%SZ}",
        expires=expiry.end(created, wanted.valid_days),
        version_sets=locked.version_sets,
        targets=[
            TargetRecord(name=t.name, os=t.os, release=t.release, arch=t.arch, python=t.python, osv=t.osv)
            for t in wanted.targets
        ],
        artifacts=[*fetched, *made],
        installer={name: sha256(bundles.installer(name)).hexdigest() for name in bundles.INSTALLER},
    )


def _download(order: Order) -> None:
    """Bring every locked artifact into the cache."""
    lacking = {a.sha256: a for a in order.locked.artifacts if not order.cache.has(a.sha256, a.size)}.values()
    # images tell how far they are in their own words
    counted = sum(a.size for a in lacking if not isinstance(a, ImageArtifact | ImagePart))
    order = replace(order, note=counter("download", counted, order.progress))
    for kind in KINDS:
        kind.fetch(order, of_kind(lacking, *kind.models))


def _client(wanted: Manifest, indexes: Callable[[], Indexes]) -> httpx.Client:
    """Return a client that knows every user and password of the sources of a manifest."""
    known = indexes()
    return fetch.client(
        known.certificates, [*known.addresses, *wanted.addresses, *rpm_source.addresses(wanted.targets)]
    )


def _check_blobs(bundle: Bundle, cache: Cache, progress: Progress) -> None:
    """Hash everything once more: the cache may be old, and links to it may have been written through."""
    sizes = bundle.sizes()
    note = counter("check", sum(sizes.values()), progress)

    def check(blob: str) -> None:
        path = cache.path(blob)
        if digest(path) != blob:
            path.unlink()
            raise IntegrityError(
                "a file in the cache was changed; it was deleted", where=str(path), hint="run the build again"
            )
        note(sizes[blob])

    in_threads(check, sizes, DOWNLOADS)


def _same(final: Path, bundle: Bundle, key: ed25519.SigningKey) -> Bundle | None:
    """Return the bundle under the final name if it holds the very same things, signed by the same key."""
    try:
        present = bundles.read_signed(final, key.public_key()).bundle
    except PenstockError:
        return None
    parts = [
        *(final / bundles.BLOBS / blob for blob in present.sizes()),
        *(final / name for name in present.attachments),
    ]
    whole = all(part.is_file() for part in parts)
    same = present.model_copy(update={"created": bundle.created}) == bundle
    return present if same and whole else None
