"""Receipts: what a site holds, signed by the site, so that the next bundle brings only what it lacks."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ConfigDict, Field, ValidationError

from common.errors import InputError, IntegrityError, NotFoundError
from common.strict import StrictModel
from reservoir.manifest.model import Sha256
from reservoir.signing import ed25519, keychain

HINT = "get a new receipt from the site: `penstock reservoir receipt`"


class HeldBundle(StrictModel):
    """A bundle that a site holds."""

    identity: str
    name: str
    version: str


class Receipt(StrictModel):
    """What one site holds. `serial` grows with every receipt; `site` is the site's public key in hex."""

    document: Literal["penstock receipt"] = "penstock receipt"
    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    site: keychain.RawKey
    serial: Annotated[int, Field(ge=1)]
    created: str
    bundles: list[HeldBundle]
    blobs: list[Sha256]

    model_config = ConfigDict(populate_by_name=True)

    @property
    def fingerprint(self) -> str:
        """Return the name by which people compare sites: the fingerprint of the site's key."""
        return sha256(bytes.fromhex(self.site)).hexdigest()


class _Signed(StrictModel):
    receipt: Receipt
    signature: str


def encode(receipt: Receipt, key: ed25519.SigningKey) -> bytes:
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
