"""Commands for the key that signs bundles."""

from __future__ import annotations

import sys

from reservoir.settings import load


def key_new() -> None:
    """Make the key that signs bundles; one that is there already stays."""
    from reservoir import signing

    path = load().signing_key
    key = signing.new_key(path)
    print(f"{path}: {signing.fingerprint(key.public_key())}")


def key_show() -> None:
    """Print the public half of the key that signs bundles; on standard error its fingerprint and those it replaced."""
    from reservoir import keychain, signing

    path = load().signing_key
    key = signing.read_key(path)
    print(f"fingerprint {signing.fingerprint(key.public_key())}", file=sys.stderr)
    for rotation in reversed(keychain.of_key(path, key).rotations):
        print(f"replaced {keychain.fingerprint(rotation.old)} on {rotation.date}", file=sys.stderr)
    print(signing.public_pem(key).decode(), end="")


def key_rotate() -> None:
    """Make a new key, signed by the present one; sites that know the old key take it over with the next bundle."""
    from reservoir import keychain

    settings = load()
    rotation = keychain.rotate(settings.signing_key, settings.timestamp)
    print(f"{settings.signing_key}: {keychain.fingerprint(rotation.new)} replaces {keychain.fingerprint(rotation.old)}")
