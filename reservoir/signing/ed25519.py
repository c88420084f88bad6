"""The integrator's Ed25519 key: made, read, used to sign a bundle's list and to check one."""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from common import files
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError
from reservoir import settings
from reservoir.signing import token

HINT = "do not use this bundle; get it again from its maker, or check which key is theirs"

# what the first line of a key with a password says
ENCRYPTED = b"ENCRYPTED PRIVATE KEY"
# bytes; a list of a million files is shorter
LONGEST = 1 << 30
# bytes; a public key or a signature is shorter, whatever stands around it; the installer has the same
SHORT = 4 << 10
_ANOTHER = "do not use this bundle; get it again from its maker"


class SigningKey(Protocol):
    """An Ed25519 key that signs, whether it lies in a file or in a token."""

    def public_key(self) -> Ed25519PublicKey:
        """Return the public half."""

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`."""


def new_key(path: Path, password: bytes | None = None) -> Ed25519PrivateKey:
    """Make a key and write it where only its owner may read it; raises ConflictError where one lies already.

    With a password the file alone is of no use to anybody.
    """
    key = Ed25519PrivateKey.generate()
    kept = BestAvailableEncryption(password) if password else NoEncryption()
    _keep(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, kept), key)
    return key


def new_token_key(path: Path, uri: str) -> SigningKey:
    """Make a key in the token that a PKCS#11 URI names, or take the one of that name, and write the URI to `path`.

    Raises ConflictError where a key lies at `path` already; then the token is as it was.
    """
    token.read(uri, "--pkcs11")
    if path.exists():
        raise _taken(path)
    key = token.make_key(uri, required_password(path), path)
    _keep(path, f"{uri.strip()}\n".encode(), key)
    return key


def _keep(path: Path, content: bytes, key: SigningKey) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}{files.BESIDE}{fingerprint(key.public_key())[:16]}")
    files.write(beside, content, 0o600)
    try:
        # a link, unlike a rename, never takes the place of a key that is there
        os.link(beside, path)
    except FileExistsError as error:
        raise _taken(path) from error
    finally:
        beside.unlink()


def _taken(path: Path) -> ConflictError:
    return ConflictError(
        "there is a key already", where=str(path), hint="keep it, or move it away before you make another"
    )


def read_key(path: Path) -> SigningKey:
    """Return the private key at `path`; the password of one that is encrypted, or its token's PIN, is asked for."""
    return open_key(path)[0]


def own_key(path: Path) -> SigningKey:
    """Return the private key at `path`, which is made where there is none."""
    return read_key(path) if path.exists() else new_key(path)


def open_key(path: Path) -> tuple[SigningKey, bytes | None]:
    """Return the private key at `path`, and its password where it is encrypted."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(
            "there is no signing key", where=str(path), hint="make one with `penstock reservoir key new`"
        ) from error
    if in_token(content):
        return token.open_key(content.decode(errors="replace"), required_password(path), path), None
    password = required_password(path) if ENCRYPTED in content else None
    try:
        key = load_pem_private_key(content, password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = "the password does not open the key" if password else "not a private key"
        raise InputError(reason, where=str(path), hint="give an Ed25519 key, and its own password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError("not an Ed25519 key", where=str(path), hint="give an Ed25519 key")
    return key, password


def in_token(content: bytes) -> bool:
    """Say whether the content of a key's file names a key in a token."""
    return content.startswith(token.SCHEME.encode())


def required_password(path: Path) -> bytes:
    """Return the password of the key at `path`, or its token's PIN; raises InputError where nobody gives one."""
    try:
        password = settings.signing_password(path)
    except OSError as error:
        raise InputError(
            f"the password cannot be read: {error.strerror}", where=str(error.filename), hint="name a file that has it"
        ) from error
    if password is None:
        raise InputError(
            "the signing key is encrypted or in a token, and there is no password or PIN",
            where=str(path),
            hint="run this on a terminal, or name a file with the password in PENSTOCK_SIGNING_PASSWORD_FILE",
        )
    return password


def public_pem(key: SigningKey) -> bytes:
    """Return the public half of a key as PEM."""
    return encode_public(key.public_key())


def encode_public(key: Ed25519PublicKey) -> bytes:
    """Return a public key as PEM."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public(pem: bytes, where: str) -> Ed25519PublicKey:
    """Return the public key in PEM `pem`."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError("not a public key", where=where, hint="give the integrator's penstock.pub") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError("not an Ed25519 key", where=where, hint="give the integrator's penstock.pub")
    return key


def carried(path: Path, longest: int | None = None) -> bytes:
    """Return a file on a carried medium that is read whole, before it is known whose it is.

    Raises FileNotFoundError where there is none, IntegrityError where it is no file or would fill the memory. What is
    looked at is what is read: a medium that shows something else meanwhile, or a link, changes nothing.
    """
    longest = longest or LONGEST
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(longest + 1) if size <= longest else b""
    if max(size, len(content)) > longest:
        raise IntegrityError("is longer than any file of its kind", where=str(path), hint=_ANOTHER)
    return content


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file on a carried medium; raises FileNotFoundError where there is none, IntegrityError for no file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        reason = (
            "is no ordinary file" if error.errno in (errno.ELOOP, errno.ENXIO) else f"cannot be read: {error.strerror}"
        )
        raise IntegrityError(reason, where=str(path), hint=_ANOTHER) from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise IntegrityError("is no ordinary file", where=str(path), hint=_ANOTHER)
        yield file


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the name by which people compare keys: the sha256 of its raw 32 bytes, in hex."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


def sign(key: SigningKey, content: bytes) -> bytes:
    """Return the signature of `content` as one line of base64."""
    return base64.b64encode(key.sign(content)) + b"\n"


def check(key: Ed25519PublicKey, content: bytes, signature: bytes, where: str, hint: str = HINT) -> None:
    """Raise IntegrityError unless `signature` was made by the key over `content`."""
    try:
        key.verify(base64.b64decode(signature.strip(), validate=True), content)
    except (InvalidSignature, binascii.Error) as error:
        raise IntegrityError(
            f"the signature does not belong to the key {fingerprint(key)[:16]}",
            where=where,
            hint=hint,
        ) from error
