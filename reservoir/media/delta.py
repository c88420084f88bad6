"""A bundle with only the blobs that one site lacks."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from common.progress import Progress, silent
from reservoir.bundle import bundles, verification
from reservoir.bundle.build import Built
from reservoir.bundle.build import make as make_bundle
from reservoir.bundle.medium import Medium, Since
from reservoir.download.cache import space_on
from reservoir.media import carry
from reservoir.media.known_sites import KnownSites
from reservoir.media.receipt import Receipt
from reservoir.settings import Settings
from reservoir.signing import ed25519


@dataclass(frozen=True)
class Delta:
    """What was built for one site: the full bundle, and beside it the folder with what the site lacks."""

    built: Built
    folder: Path
    receipt: Receipt


def build_since(
    receipt: Path,
    manifest: Path,
    lock: Path,
    below: Path,
    settings: Settings,
    *,
    trusted: str | None = None,
    progress: Progress = silent,
) -> Delta:
    """Build the bundle of a manifest and its delta for the site of a receipt.

    `trusted` is the fingerprint of a site that is accepted with its first receipt. Raises the errors of
    `KnownSites.accept` before anything is built, then those of `build.make`.
    """
    known = KnownSites(settings.known_sites)
    found, digest = known.accept(receipt, trusted)
    built = make_bundle(manifest, lock, below, settings, progress)
    progress("write the delta")
    folder = make(built.folder, found, digest, ed25519.read_key(settings.signing_key))
    known.used(found, digest)
    return Delta(built, folder, found)


def make(full: Path, receipt: Receipt, digest: str, key: ed25519.SigningKey) -> Path:
    """Write the delta of the finished bundle at `full` beside it, and return its folder.

    `receipt` says what the site holds, `digest` is the sha256 of its file. The list and its signature stay the very
    same as those of the full bundle.
    """
    found = verification.read(full, key.public_key())
    carry.require_maker(found, key)
    medium = Medium(
        bundle=sha256(found.content).hexdigest(),
        number=1,
        files=[sorted(found.bundle.sizes().keys() - set(receipt.blobs))],
        since=Since(site=receipt.fingerprint, serial=receipt.serial, receipt=digest),
    )
    final = full.with_name(f"{full.name}-since-{receipt.fingerprint[:8]}-{receipt.serial}")
    staging = full.with_name(f".{final.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    with space_on(full.parent, staging):
        carry.write(found, medium, key, staging)
    bundles.replace_folder(staging, final)
    return final
