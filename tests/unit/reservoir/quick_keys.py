"""Keys for repositories take long to find: tests have some in turn, the shortest that verifiers accept."""

from __future__ import annotations

from functools import cache
from itertools import cycle

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from reservoir.signing import openpgp_key

BITS = 2048
KEYS = 8
"""Keys of this process: more than any test makes, so that those of a test differ."""
TURNS = cycle(range(KEYS))


def use(patch: pytest.MonkeyPatch) -> None:
    """Let what makes a key take the next one."""
    patch.setattr(openpgp_key, "BITS", BITS)
    patch.setattr(openpgp_key, "generate_private_key", taken)


def taken(public_exponent: int, key_size: int) -> RSAPrivateKey:
    """Take the place of the function that finds a key."""
    return found(next(TURNS), public_exponent, key_size)


@cache
def found(_turn: int, public_exponent: int, key_size: int) -> RSAPrivateKey:
    return generate_private_key(public_exponent, key_size)
