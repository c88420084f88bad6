"""Commands for the key that signs bundles."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from common.errors import InputError
from reservoir.settings import load


def key_new(
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Keep it under a password, which each use of the key asks for.")
    ] = False,
) -> None:
    """Make the key that signs bundles; one that is there already stays.

    The password comes from the terminal, or from the file that PENSTOCK_SIGNING_PASSWORD_FILE names.
    """
    from reservoir.signing import ed25519

    path = load().signing_key
    password = ed25519.required_password(path) if encrypt else None
    if encrypt and ed25519.required_password(path) != password:
        raise InputError("the two passwords differ", where=str(path), hint="type the same one twice")
    key = ed25519.new_key(path, password)
    print(f"{path}: {ed25519.fingerprint(key.public_key())}")


def key_show() -> None:
    """Print the public half of the key that signs bundles; on standard error its fingerprint and those it replaced."""
    from reservoir.signing import ed25519, keychain

    path = load().signing_key
    key = ed25519.read_key(path)
    print(f"fingerprint {ed25519.fingerprint(key.public_key())}", file=sys.stderr)
    for rotation in reversed(keychain.of_key(path, key).rotations):
        print(f"replaced {keychain.fingerprint(rotation.old)} on {rotation.date}", file=sys.stderr)
    print(ed25519.public_pem(key).decode(), end="")


def key_rotate() -> None:
    """Make a new key, signed by the present one; sites that know the old key take it over with the next bundle."""
    from reservoir.signing import keychain

    settings = load()
    rotation = keychain.rotate(settings.signing_key, settings.timestamp)
    print(f"{settings.signing_key}: {keychain.fingerprint(rotation.new)} replaces {keychain.fingerprint(rotation.old)}")
