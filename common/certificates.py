"""Certificates of a service in files, which a deploy writes: what is wrong with one is said with its name."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from common.errors import InputError

R = TypeVar("R")


def context(purpose: ssl.Purpose, ca: Path, cert: Path, key: Path) -> ssl.SSLContext:
    """Return how a service speaks TLS that trusts an authority and shows a certificate of its own.

    Raises InputError, which names the file that cannot be used.
    """
    made = _using(ca, "the authority cannot be read", lambda: ssl.create_default_context(purpose, cafile=str(ca)))
    # of the two that follow OpenSSL does not say which one it means
    _using(cert, "the certificate cannot be read", lambda: ssl.create_default_context(cafile=str(cert)))
    _using(key, f"the key cannot be used with {cert}", lambda: made.load_cert_chain(cert, key))
    return made


def _using(path: Path, trouble: str, load: Callable[[], R]) -> R:
    try:
        return load()
    except OSError as error:
        raise InputError(
            f"{trouble}: {error.strerror or error}", where=str(path), hint="`penstock site deploy` brings it back"
        ) from error
