"""OpenPGP: the site's key, by which apt and dnf know its repositories, and the signatures of package sources."""

from __future__ import annotations

from collections.abc import Sequence

from pysequoia import Cert, Sig, Tsk
from pysequoia import verify as sequoia_verify

from common.errors import InputError, IntegrityError
from reservoir.signing import openpgp_key

USER_ID = "Penstock package archive"


def new_key() -> bytes:
    """Return a new secret key for repositories; it never expires, as clocks in a closed network may be wrong."""
    return openpgp_key.make(USER_ID)


def public_key(secret: bytes) -> bytes:
    """Return the public half of a repository key, in ASCII armour."""
    return str(Tsk.from_bytes(secret).extract_certificate()).encode()


def binary_key(secret: bytes) -> bytes:
    """Return the public half of a repository key as gpgv reads it."""
    return bytes(Tsk.from_bytes(secret).extract_certificate())


def sign_inside(secret: bytes, text: bytes) -> bytes:
    """Return `text` with its signature around it, as in apt's InRelease.

    Nothing in it depends on the clock: the same text gives the same bytes.
    """
    lines = text.decode().rstrip("\n").split("\n")
    covered = "\r\n".join(line.rstrip(" \t\r") for line in lines).encode()
    shown = "\n".join(f"- {line}" if line.startswith("-") else line for line in lines)
    armoured = _signature(secret, covered, openpgp_key.TEXT)
    return f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{shown}\n{armoured}".encode()


def sign_beside(secret: bytes, content: bytes) -> bytes:
    """Return a signature that lies beside what it signs, in ASCII armour: apt's Release.gpg, dnf's repomd.xml.asc."""
    return _signature(secret, content, openpgp_key.BINARY).encode()


def certificates(content: bytes, where: str) -> list[Cert]:
    """Return the public keys in a file, binary or in ASCII armour; raises InputError where there are none."""
    try:
        # sequoia's errors are RuntimeError, whatever went wrong
        return list(Cert.split_bytes(content))
    except RuntimeError as error:
        raise InputError(
            "there are no OpenPGP keys in it", where=where, hint="put the public keys of the package source there"
        ) from error


def signed_beside(keys: Sequence[Cert], content: bytes, signature: bytes) -> bool:
    """Say whether one of the keys made the signature that lies beside `content`."""
    try:
        sequoia_verify(bytes=content, store=lambda _: list(keys), signature=Sig.from_bytes(signature))
    except RuntimeError:
        return False
    return True


def _signature(secret: bytes, content: bytes, kind: int) -> str:
    try:
        return str(Sig.from_bytes(openpgp_key.sign(secret, content, kind)))
    except ValueError as error:
        raise IntegrityError(
            f"the site's key for repositories is damaged, or of another form: {error}",
            where="keys/apt.key",
            hint="move it away and publish again: a new key is made, and `penstock site deploy` takes it to the nodes",
        ) from error
