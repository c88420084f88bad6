"""A certificate of the company's own authority, which people's browsers trust, for console, API and apps.

The site names its files on the controller. A deploy looks at them before it changes anything, and keeps copies with the
site's state, so that they are in backups and a rebuilt controller has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from appliance.site.model import Site
from common import files
from common.errors import InputError, Problem

CERTIFICATE, KEY = "edge.crt", "edge.key"
HINT = "have one made for these names, chain first to last in PEM, or leave `certificate_file` and `key_file` out"


def require(site: Site, state: Path, *, now: datetime | None = None) -> None:
    """Raise InputError that lists what is wrong with the certificate that a site names, if it names one."""
    if site.edge.certificate_file is None or site.edge.key_file is None:
        return
    certificate = _read(site.edge.certificate_file, state / CERTIFICATE, "edge.certificate_file")
    key = _read(site.edge.key_file, state / KEY, "edge.key_file")
    if problems := list(_problems(site, certificate, key, now or datetime.now(UTC))):
        raise InputError.of(problems)


def keep(site: Site, state: Path) -> bool:
    """Copy the files to the site's state, or remove copies that no site names; returns whether that changed them."""
    if site.edge.certificate_file is None or site.edge.key_file is None:
        present = [path for path in (state / CERTIFICATE, state / KEY) if path.exists()]
        for path in present:
            path.unlink()
        return bool(present)
    changed = False
    for source, name in ((site.edge.certificate_file, CERTIFICATE), (site.edge.key_file, KEY)):
        path = state / name
        content = _read(source, path, source)
        if not path.is_file() or path.read_bytes() != content:
            files.write(path, content, 0o600)
            changed = True
    return changed


def until(state: Path) -> float | None:
    """Return when the certificate ends, in seconds since 1970; None where the site has none."""
    try:
        certificates = x509.load_pem_x509_certificates((state / CERTIFICATE).read_bytes())
    except FileNotFoundError:
        return None
    return min(each.not_valid_after_utc for each in certificates).timestamp()


def _read(source: str, copy: Path, where: str) -> bytes:
    """Return a file of the controller, or the copy of the last deploy where it is gone, as after a rebuild."""
    try:
        return Path(source).read_bytes()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and copy.is_file():
            return copy.read_bytes()
        raise InputError(
            f"{source} cannot be read: {error.strerror}", where=where, hint="put it there on this machine"
        ) from error


def _problems(site: Site, certificate: bytes, key: bytes, now: datetime) -> Iterator[Problem]:
    file, key_file = str(site.edge.certificate_file), str(site.edge.key_file)
    try:
        chain = x509.load_pem_x509_certificates(certificate)
    except ValueError:
        yield Problem("edge.certificate_file", f"{file} is no certificate in PEM", HINT)
        return
    own = chain[0]
    private = _private(key)
    if private is None:
        reason = f"{key_file} is no private key in PEM without a passphrase"
        yield Problem("edge.key_file", reason, "give the key of the certificate")
    elif private.public_key() != own.public_key():
        yield Problem("edge.key_file", f"{key_file} is not the key of {file}", "give the key of the certificate")
    if missing := [name for name in _names(site) if not _speaks_for(own, name)]:
        yield Problem("edge.certificate_file", f"{file} does not speak for {', '.join(missing)}", HINT)
    for each in chain:
        who = each.subject.rfc4514_string()
        if each.not_valid_after_utc <= now:
            reason = f"{file}: that of {who} ended on {each.not_valid_after_utc:%F}"
            yield Problem("edge.certificate_file", reason, "have it renewed")
        elif each.not_valid_before_utc > now:
            reason = f"{file}: that of {who} counts only from {each.not_valid_before_utc:%F}"
            yield Problem("edge.certificate_file", reason, "look at the clock of this machine, or wait")
    for under, above in pairwise(chain):
        if under.issuer != above.subject:
            reason = f"{file}: {above.subject.rfc4514_string()} did not make the one before it"
            yield Problem("edge.certificate_file", reason, "put the site's own first, then who made each")


def _names(site: Site) -> list[str]:
    """Return the names that people call the master by, and as one that of their apps."""
    return [*site.edge.names, *filter(None, [site.edge.apps_wildcard])]


def _private(key: bytes) -> PrivateKeyTypes | None:
    try:
        return serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        return None


def _speaks_for(certificate: x509.Certificate, name: str) -> bool:
    """Return whether browsers take a certificate for a name: one that it says, or below one with a star."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    said = {each.lower() for each in names.get_values_for_type(x509.DNSName)}
    return name in said or f"*.{name.partition('.')[2]}" in said
