"""Commands for the key that signs bundles."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from common.errors import InputError
from reservoir.settings import load

Pkcs11 = Annotated[
    str | None,
    typer.Option("--pkcs11", metavar="URI", help="Keep it in the token that this PKCS#11 URI names."),
]


def key_new(
    *,
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Keep it under a password, which each use of the key asks for.")
    ] = False,
    pkcs11: Pkcs11 = None,
) -> None:
    """Make the key that signs bundles; one that is there already stays.

    The password, or the PIN, comes from the terminal, or from the file that PENSTOCK_SIGNING_PASSWORD_FILE names.
    """
    from reservoir.signing import ed25519

    path = load().signing_key
    if pkcs11:
        if encrypt:
            raise InputError("a key in a token has a PIN", where="--encrypt", hint="leave out --encrypt or --pkcs11")
        key = ed25519.new_token_key(path, pkcs11)
        print(f"{path}: {ed25519.fingerprint(key.public_key())}")
        return
    password = ed25519.required_password(path) if encrypt else None
    if encrypt and ed25519.required_password(path) != password:
        raise InputError("the two passwords differ", where=str(path), hint="type the same one twice")
    made = ed25519.new_key(path, password)
    print(f"{path}: {ed25519.fingerprint(made.public_key())}")


def key_show() -> None:
    """Print the public half of the key that signs bundles; on standard error its fingerprint and those it replaced."""
    from reservoir.signing import ed25519, keychain

    path = load().signing_key
    key = ed25519.read_key(path)
    print(f"fingerprint {ed25519.fingerprint(key.public_key())}", file=sys.stderr)
    for rotation in reversed(keychain.of_key(path, key).rotations):
        print(f"replaced {keychain.fingerprint(rotation.old)} on {rotation.date}", file=sys.stderr)
    print(ed25519.public_pem(key).decode(), end="")


def key_rotate(pkcs11: Pkcs11 = None) -> None:
    """Make a new key, signed by the present one; sites that know the old key take it over with the next bundle."""
    from reservoir.signing import keychain

    settings = load()
    rotation = keychain.rotate(settings.signing_key, settings.timestamp, pkcs11)
    print(f"{settings.signing_key}: {keychain.fingerprint(rotation.new)} replaces {keychain.fingerprint(rotation.old)}")
