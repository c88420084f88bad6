"""Receipts as a site writes them: of what it holds and what of that is sound."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common import files
from common.errors import IntegrityError
from common.progress import Progress, counter, silent
from reservoir.download.cache import flush, reads_as
from reservoir.download.threads import in_threads
from reservoir.intake.store import Store
from reservoir.media.receipt import HeldBundle, Receipt, encode
from reservoir.signing import ed25519, keychain


@dataclass(frozen=True)
class Written:
    """A receipt, the content of its file, and the files of blobs that were found damaged and are not in it."""

    receipt: Receipt
    content: bytes
    damaged: list[Path]


def write(root: Path, timestamp: int, progress: Progress = silent) -> Written:
    """Return a new receipt of the store at `root`; the site's key is made at the first one.

    Every blob is read, so that the receipt promises nothing that is damaged. `timestamp` counts seconds since 1970.
    """
    store = Store(root)
    with store.changing():
        held = store.imported()
        blobs, damaged = _sound(store, progress)
        key = ed25519.own_key(store.site_key)
        receipt = Receipt(
            site=keychain.raw(key.public_key()),
            serial=_next_serial(store),
            created=f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%dT%H:%M:%SZ}",
            bundles=[HeldBundle(identity=name, name=b.name, version=b.version) for name, b in held.items()],
            blobs=blobs,
        )
        return Written(receipt, encode(receipt, key), damaged)


def _sound(store: Store, progress: Progress) -> tuple[list[str], list[Path]]:
    """Return the blobs of the imported bundles that are what their names say, and the files that are not."""
    sizes: dict[str, int] = {}
    for bundle in store.imported().values():
        sizes |= bundle.sizes()
    present = [blob for blob in sorted(sizes) if (store.blobs / blob).is_file()]
    note = counter("check what the site has", sum(sizes[blob] for blob in present), progress)

    def sound(blob: str) -> bool:
        good = reads_as(store.blobs / blob, blob)
        note(sizes[blob])
        return good

    found = list(zip(present, in_threads(sound, present), strict=True))
    return [blob for blob, good in found if good], [store.blobs / blob for blob, good in found if not good]


def _next_serial(store: Store) -> int:
    """Return a number that no receipt of this site has had; it is on the disk before the receipt exists."""
    try:
        last = int(store.receipt_serial.read_text()) if store.receipt_serial.exists() else 0
    except ValueError as error:
        raise IntegrityError(
            "not a number",
            where=str(store.receipt_serial),
            hint="write the number of this site's last receipt into it",
        ) from error
    files.write(store.receipt_serial, f"{last + 1}\n", 0o600)
    flush([store.keys])
    return last + 1
