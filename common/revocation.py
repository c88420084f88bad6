"""Certificates that the site's authority has revoked: its list in a file, which TLS of this process goes by.

A new list is taken up while a process runs, so that nobody's connections end because another node left the site.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from weakref import WeakKeyDictionary

import structlog

from common.errors import InputError

log = structlog.get_logger()

EVERY_S = 5.0
"""So often the files are looked at."""

_Version = tuple[int, int]
_held: WeakKeyDictionary[ssl.SSLContext, tuple[Path, _Version]] = WeakKeyDictionary()


def refuse_revoked(context: ssl.SSLContext, path: Path | None) -> ssl.SSLContext:
    """Let a context refuse who shows a certificate that the list in the file `path` has, and return it.

    A server's context takes TLS 1.3 only then. Without a file nothing is refused. Raises InputError where the list
    cannot be read.
    """
    if path is None:
        return context
    try:
        _held[context] = path, _load(context, path)
    except OSError as error:
        raise InputError(
            f"the list of revoked certificates cannot be read: {error}",
            where=str(path),
            hint="deploy the site, which writes it",
        ) from error
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if context.protocol is ssl.PROTOCOL_TLS_SERVER:
        _forget_who_came(context)
    return context


def refresh() -> None:
    """Take up the lists that have changed; one that cannot be read changes nothing, and stands in the log."""
    for context, (path, version) in list(_held.items()):
        try:
            if _version(path) != version:
                _held[context] = path, _load(context, path)
        except OSError as error:
            log.warning("the list of revoked certificates cannot be read", path=str(path), reason=str(error))


async def keep_fresh() -> None:
    """Take up new lists for ever."""
    while True:
        await asyncio.sleep(EVERY_S)
        refresh()


def _forget_who_came(context: ssl.SSLContext) -> None:
    """Let nobody resume a session: a certificate is looked at when one begins only, and may be revoked since."""
    # sessions of before TLS 1.3 cannot be switched off from Python
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0


def _load(context: ssl.SSLContext, path: Path) -> _Version:
    version = _version(path)
    # of several lists of one authority OpenSSL goes by the newest
    context.load_verify_locations(cafile=path)
    return version


def _version(path: Path) -> _Version:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino
