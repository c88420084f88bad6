"""Keys for repositories take long to find and to check: tests have some in turn, the shortest that verifiers accept."""

from __future__ import annotations

from functools import cache
from itertools import cycle
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPrivateNumbers, generate_private_key

from reservoir.signing import openpgp_key

BITS = 2048
KEYS = 8
"""Keys of this process: more than any test makes, so that those of a test differ."""
TURNS = cycle(range(KEYS))


def use(patch: pytest.MonkeyPatch) -> None:
    """Let what makes a key take the next one."""
    patch.setattr(openpgp_key, "BITS", BITS)
    patch.setattr(openpgp_key, "generate_private_key", taken)
    patch.setattr(openpgp_key, "Private", Numbers)


def taken(public_exponent: int, key_size: int) -> RSAPrivateKey:
    """Take the place of the function that finds a key."""
    return found(next(TURNS), public_exponent, key_size)


@cache
def found(_turn: int, public_exponent: int, key_size: int) -> RSAPrivateKey:
    return generate_private_key(public_exponent, key_size)


class Numbers:
    """The numbers of a key, which are checked once: the key is kept, and what is none is refused each time."""

    def __init__(self, *numbers: Any) -> None:
        self.numbers = numbers

    def private_key(self) -> RSAPrivateKey:
        return checked(*self.numbers)


@cache
def checked(*numbers: Any) -> RSAPrivateKey:
    return RSAPrivateNumbers(*numbers).private_key()
