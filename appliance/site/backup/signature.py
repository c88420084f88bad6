"""Signature of a backup by its site's own key: others may write where the copies are, and nobody there makes one.

What a backup has is carried out on the master, and becomes the site's authority: it is looked at before anything of it
is used. What a record says later, such as when it was verified, is not signed.
"""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from appliance.site.backup.catalogue import RECORD, Catalogue, Record
from appliance.site.backup.secrets import Places
from common.errors import InputError, IntegrityError
from reservoir.intake.store import Store
from reservoir.signing import ed25519, keychain

HEAD = "penstock backup\n"
"""Before what is signed: the key signs other things, too."""
LINE = "# signer: "
"""Begins the line with the signer in the file of a private key."""
UNSIGNED = "say --unsigned where nobody else can write in that folder"


def signer(places: Places) -> str:
    """Return who signs the backups of this machine's site: the public half of its own key, in hex."""
    return keychain.raw(own_key(places).public_key())


def own_key(places: Places) -> ed25519.SigningKey:
    """Return the key of this machine's site; the first who asks makes it."""
    return ed25519.own_key(Store(places.root).site_key)


def sign(record: Record, key: ed25519.SigningKey) -> None:
    """Sign what a record says of its files and of what is in them."""
    record.signature = ed25519.sign(key, _signed(record)).decode().strip()


def chosen(folder: Path, name: str | None, by: str) -> Record:
    """Return a backup by its name, or the newest good one, made by a signer, in hex, or with none by anybody.

    Raises NotFoundError or ConflictError without such a backup, IntegrityError where somebody else made it.
    """
    record = Catalogue(folder).choose(name)
    if by:
        require(folder, record, by)
    return record


def require_own(folder: Path, record: Record, places: Places) -> None:
    """Raise IntegrityError for a backup of the first place, where root alone writes, that was altered there."""
    if record.signature:
        require(folder, record, signer(places))


def require(folder: Path, record: Record, by: str) -> None:
    """Raise IntegrityError for a backup that another made, or a release that signed none."""
    where = str(folder / f"{record.name}{RECORD}")
    if not record.signature:
        raise IntegrityError("nobody signed this backup", where=where, hint=f"use another backup, or {UNSIGNED}")
    hint = f"use another backup; was the site's key another one then, {UNSIGNED}"
    ed25519.check(_public(by), _signed(record), record.signature.encode(), where, hint)


def named(by: str | None, identity: Path) -> str:
    """Return the signer that somebody gave, or else the one in the file of a private key; raises InputError."""
    found = by or _noted(identity)
    if not found:
        raise InputError(
            "nobody knows who may have made the backup",
            where="--signer",
            hint=f"give what `penstock backup signer` printed on the site, keep it in the key's file, or {UNSIGNED}",
        )
    _public(found)
    return found


def _noted(identity: Path) -> str:
    try:
        lines = identity.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        # what opens it says so
        return ""
    return next((line.removeprefix(LINE).strip() for line in lines if line.startswith(LINE)), "")


def _public(by: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(by))
    except ValueError as error:
        hint = "give the 64 digits that `penstock backup signer` prints"
        raise InputError(f"{by} is no signer", where="--signer", hint=hint) from error


def _signed(record: Record) -> bytes:
    told = {
        "name": record.name,
        "number": record.number,
        "time": record.time,
        "site": record.site,
        "version": record.version,
        "schema": record.schema,
        "tables": record.tables,
        "files": {name: record.files.get(name) for name in record.needed},
    }
    return f"{HEAD}{json.dumps(told, sort_keys=True)}".encode()
