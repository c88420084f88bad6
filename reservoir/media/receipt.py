"""What a site holds, signed by the site, so that the next bundle brings only what it lacks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import ConfigDict, Field, ValidationError

from common import files
from common.errors import InputError, IntegrityError, NotFoundError
from common.progress import Progress, silent
from reservoir.contents.base import Model
from reservoir.download.cache import flush, reads_as
from reservoir.download.threads import in_threads
from reservoir.intake.store import Store
from reservoir.manifest.model import Sha256
from reservoir.signing import ed25519, keychain

HINT = "get a new receipt from the site: `penstock reservoir receipt`"


class HeldBundle(Model):
    """A bundle that a site holds."""

    identity: str
    name: str
    version: str


class Receipt(Model):
    """What one site holds. `serial` grows with every receipt; `site` is the site's public key in hex."""

    document: Literal["penstock receipt"] = "penstock receipt"
    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    site: keychain.RawKey
    serial: Annotated[int, Field(ge=1)]
    created: str
    bundles: list[HeldBundle]
    blobs: list[Sha256]

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def fingerprint(self) -> str:
        """Return the name by which people compare sites: the fingerprint of the site's key."""
        return sha256(bytes.fromhex(self.site)).hexdigest()


class _Signed(Model):
    receipt: Receipt
    signature: str


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
        key = ed25519.read_key(store.site_key) if store.site_key.exists() else ed25519.new_key(store.site_key)
        receipt = Receipt(
            site=keychain.raw(key.public_key()),
            serial=_next_serial(store),
            created=f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%dT%H:%M:%SZ}",
            bundles=[HeldBundle(identity=name, name=b.name, version=b.version) for name, b in held.items()],
            blobs=blobs,
        )
        return Written(receipt, encode(receipt, key), damaged)


def encode(receipt: Receipt, key: Ed25519PrivateKey) -> bytes:
    """Return the content of a receipt's file, signed with the site's key."""
    signature = ed25519.sign(key, _message(receipt)).decode().strip()
    content = {"receipt": receipt.model_dump(mode="json", by_alias=True), "signature": signature}
    return json.dumps(content, sort_keys=True).encode() + b"\n"


def read(path: Path) -> tuple[Receipt, str]:
    """Return a receipt whose signature holds, and the sha256 of its file; that the site is known is not checked."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"cannot read the receipt: {error.strerror}", where=str(path), hint=HINT) from error
    try:
        signed = _Signed.model_validate_json(content)
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed.receipt.site))
    except ValidationError as error:
        raise InputError("not a receipt", where=str(path), hint=HINT) from error
    try:
        ed25519.check(key, _message(signed.receipt), signed.signature.encode(), str(path), HINT)
    except IntegrityError as error:
        raise IntegrityError("the receipt is forged or damaged", where=str(path), hint=HINT) from error
    return signed.receipt, sha256(content).hexdigest()


def _message(receipt: Receipt) -> bytes:
    """Return the bytes that the site signs."""
    return json.dumps(receipt.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":")).encode()


def _sound(store: Store, progress: Progress) -> tuple[list[str], list[Path]]:
    """Return the blobs of the imported bundles that are what their names say, and the files that are not."""
    sizes: dict[str, int] = {}
    for bundle in store.imported().values():
        sizes |= bundle.sizes()
    present = [blob for blob in sorted(sizes) if (store.blobs / blob).is_file()]
    progress("check what the site has")
    same = in_threads(lambda blob: reads_as(store.blobs / blob, blob), present)
    sound = [blob for blob, good in zip(present, same, strict=True) if good]
    return sound, [store.blobs / blob for blob in present if blob not in set(sound)]


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
