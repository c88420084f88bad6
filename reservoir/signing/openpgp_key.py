"""An OpenPGP key in the plainest form there is: RSA, one key that signs all, nothing marked as critical.

Sequoia's own keys have critical parts that the parser of rpm itself does not know, as most distributions build it, so
that their nodes could not import them. And what Sequoia signs is dated now: apt on Debian 13 refuses it on a node whose
clock is behind. Key and signatures made here are dated before any clock of a node. Packets are those of RFC 4880.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    generate_private_key,
    rsa_crt_dmp1,
    rsa_crt_dmq1,
    rsa_crt_iqmp,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers as Private
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers as Public
from cryptography.hazmat.primitives.hashes import SHA512

BITS = 3072
SECRET_KEY, USER_ID, SIGNATURE = 5, 13, 2
RSA = 1
HASH_SHA512, HASH_SHA256 = 10, 8
BINARY, TEXT = 0x00, 0x01
# the signature by which a key vouches for its own name
POSITIVE_CERTIFICATION = 0x13
CREATED, ISSUER, PREFERRED_HASHES, FLAGS, ISSUER_FINGERPRINT = 2, 16, 21, 27, 33
MAY_CERTIFY, MAY_SIGN = 1, 2
DATED = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()).to_bytes(4)


def make(user_id: str) -> bytes:
    """Return a new secret key with a name, binary and without a password; it never expires."""
    key = generate_private_key(public_exponent=65537, key_size=BITS)
    numbers = key.private_numbers()
    first, second = sorted((numbers.p, numbers.q))
    secret = b"".join(map(_number, (numbers.d, first, second, pow(first, -1, second))))
    name = user_id.encode()
    named = b"\xb4" + len(name).to_bytes(4) + name
    may = _part(FLAGS, bytes([MAY_CERTIFY | MAY_SIGN])) + _part(PREFERRED_HASHES, bytes([HASH_SHA512, HASH_SHA256]))
    return b"".join(
        [
            # 0: no password
            _packet(SECRET_KEY, _public(key) + b"\x00" + secret + (sum(secret) % 65536).to_bytes(2)),
            _packet(USER_ID, name),
            _signature(key, POSITIVE_CERTIFICATION, _framed(key) + named, may),
        ]
    )


def sign(secret: bytes, content: bytes, kind: int) -> bytes:
    """Return the signature packet over `content`, of the `kind` BINARY or TEXT; raises ValueError for a foreign key."""
    return _signature(_read(secret), kind, content)


# kept for the other signatures of a publication: to check its numbers takes far longer than to sign
@lru_cache(maxsize=1)
def _read(secret: bytes) -> RSAPrivateKey:
    """Return the key in what `make` returned, checked."""
    if secret[:2] != bytes([0xC0 | SECRET_KEY, 0xFF]) or secret[6:11] != b"\x04" + DATED or secret[11] != RSA:
        raise ValueError("not a key of this form")
    numbers = _numbers(secret[12 : 6 + int.from_bytes(secret[2:6])])
    n, e, d, p, q = numbers
    private = Private(p, q, d, rsa_crt_dmp1(d, p), rsa_crt_dmq1(d, q), rsa_crt_iqmp(p, q), Public(e, n))
    return private.private_key()


def _numbers(content: bytes) -> Iterator[int]:
    """Yield the numbers of a secret key's packet; the octet that says that there is no password stands after two."""
    for index in range(5):
        if index == 2:
            content = content[1:]
        length = (int.from_bytes(content[:2]) + 7) // 8
        yield int.from_bytes(content[2 : 2 + length])
        content = content[2 + length :]


def _public(key: RSAPrivateKey) -> bytes:
    """Return what a packet says of the public key."""
    numbers = key.public_key().public_numbers()
    return b"\x04" + DATED + bytes([RSA]) + _number(numbers.n) + _number(numbers.e)


def _framed(key: RSAPrivateKey) -> bytes:
    """Return the public key as fingerprints and certifications hash it."""
    public = _public(key)
    return b"\x99" + len(public).to_bytes(2) + public


def _signature(key: RSAPrivateKey, kind: int, content: bytes, more: bytes = b"") -> bytes:
    """Return the packet of a signature over `content`; `more` are further parts that it covers."""
    fingerprint = hashlib.sha1(_framed(key), usedforsecurity=False).digest()
    covered = _part(CREATED, DATED) + more + _part(ISSUER_FINGERPRINT, b"\x04" + fingerprint)
    head = bytes([4, kind, RSA, HASH_SHA512]) + len(covered).to_bytes(2) + covered
    signed = content + head + b"\x04\xff" + len(head).to_bytes(4)
    beside = _part(ISSUER, fingerprint[-8:])
    number = _number(int.from_bytes(key.sign(signed, PKCS1v15(), SHA512())))
    hint = hashlib.sha512(signed).digest()[:2]
    return _packet(SIGNATURE, head + len(beside).to_bytes(2) + beside + hint + number)


def _number(value: int) -> bytes:
    return value.bit_length().to_bytes(2) + value.to_bytes((value.bit_length() + 7) // 8)


def _part(kind: int, content: bytes) -> bytes:
    return bytes([len(content) + 1, kind]) + content


def _packet(kind: int, content: bytes) -> bytes:
    return bytes([0xC0 | kind, 0xFF]) + len(content).to_bytes(4) + content
