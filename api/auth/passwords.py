"""Password hashes (argon2) and random secrets."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

hasher = PasswordHasher()
_turns = asyncio.Semaphore(2)
"""Each hash takes 64 MiB and a core: a crowd that signs in waits instead of taking the machine."""


async def make_hash(password: str) -> str:
    """Return the argon2 hash of a password."""
    async with _turns:
        return await asyncio.to_thread(hasher.hash, password)


async def matches(known: str | None, password: str) -> bool:
    """Return whether a password has the hash; with no hash it takes as long and is False."""
    async with _turns:
        return await asyncio.to_thread(_matches, known, password)


def new_secret(prefix: str = "") -> str:
    """Return a random secret of 256 bits."""
    return prefix + secrets.token_urlsafe(32)


def fingerprint(secret: str) -> str:
    """Return what the database keeps of a random secret; it needs no slow hash, for nobody can guess 256 bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _matches(known: str | None, password: str) -> bool:
    try:
        return hasher.verify(known or _of_nobody(), password) and known is not None
    except (VerifyMismatchError, InvalidHashError):
        return False


@cache
def _of_nobody() -> str:
    return hasher.hash(secrets.token_urlsafe(16))
