"""The site's own certificate authority: one CA, and one certificate a node for both ends of every TLS connection.

Everything lives in one folder of the controller: `ca.crt`, `ca.key`, the list `ca.crl` of certificates that no longer
count, `nodes/<name>/node.crt` with `node.key`, and `controller/` with the pair of the controller's service.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from appliance.site.inventory import aliases
from appliance.site.model import Node, NodeRole, Site
from common import files
from common.errors import NotFoundError, UnavailableError
from common.repair_protocol import CONTROLLER

CA_DAYS = 3650
NODE_DAYS = 825
RENEW_DAYS = 60
LOOPBACK = IPv4Address("127.0.0.1")
CLOCK_SLACK = timedelta(days=1)
LIST = "ca.crl"
CONTROLLER_FOLDER = "controller"
AUTHORITY = "ca"


@dataclass(frozen=True)
class CertificateName:
    """Who a certificate speaks for: the common name, and every name and address under which it is reached."""

    name: str
    names: tuple[str, ...]
    addresses: tuple[IPv4Address, ...]


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def issue(site: Site, directory: Path, *, now: datetime | None = None) -> bool:
    """Make or renew the CA and the certificates of a site below `directory`; returns whether anything changed.

    A certificate is made anew where it is missing, damaged, signed by another CA, due in RENEW_DAYS, or where
    the names and addresses of its node have changed. A CA is never replaced while it is valid for RENEW_DAYS more.
    Certificates of nodes that have left the site are revoked.
    """
    moment = now or datetime.now(UTC)
    ca, changed = _ca(directory, site.name, moment)
    changed |= _revoke_absent(directory, {node.name for node in site.nodes}, ca, moment)
    for subject in certificate_names(site):
        changed |= _node(directory / "nodes" / subject.name, subject, ca, moment)
    controller = directory / CONTROLLER_FOLDER
    return changed | _node(controller, CertificateName(CONTROLLER, (CONTROLLER,), ()), ca, moment)


def revoke(directory: Path, name: str, *, now: datetime | None = None) -> None:
    """Revoke the certificate of a node; the next `issue` makes another one where the node is of the site.

    Raises NotFoundError where it has none.
    """
    moment = now or datetime.now(UTC)
    ca, folder = _load(directory / "ca"), directory / "nodes" / name
    if ca is None or not folder.is_dir():
        raise NotFoundError(
            f"there is no certificate of {name}", where=str(folder), hint="run it on the controller of the site"
        )
    _revoke(directory, [folder], ca, moment)


def ends(directory: Path) -> dict[str, datetime]:
    """Return when certificates end, that of the authority and those of nodes and controller by their names."""
    nodes = {folder.name: folder / "node" for folder in sorted((directory / "nodes").glob("*"))}
    paths = {AUTHORITY: directory / "ca", CONTROLLER: directory / CONTROLLER_FOLDER / "node", **nodes}
    pairs = {name: _load(path) for name, path in paths.items()}
    return {name: pair.certificate.not_valid_after_utc for name, pair in pairs.items() if pair}


def certificate_names(site: Site) -> list[CertificateName]:
    """Return what each node's certificate says, in the order of the site."""
    return [
        CertificateName(
            node.name,
            (node.name, *aliases(site, node), *_wildcards(site, node), "localhost"),
            (node.address, LOOPBACK),
        )
        for node in site.nodes
    ]


def _wildcards(site: Site, node: Node) -> list[str]:
    return [site.edge.apps_wildcard] if site.edge.apps_wildcard and NodeRole.MASTER in node.roles else []


def _ca(directory: Path, site_name: str, now: datetime) -> tuple[Pair, bool]:
    path = directory / "ca"
    present = _load(path)
    if present is not None and _valid(present.certificate, now):
        return present, False
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Penstock CA of {site_name}")])
    public = key.public_key()
    certificate = (
        _builder(name, name, public, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    pair = Pair(certificate, key)
    _store(path, pair)
    return pair, True


def _revoke_absent(directory: Path, present: set[str], ca: Pair, now: datetime) -> bool:
    """Revoke what nodes have that are not `present`, and keep a list that is the CA's; returns whether it changed."""
    folders = sorted(path for path in (directory / "nodes").glob("*") if path.name not in present)
    if not folders and _revoked(directory, ca) is not None:
        return False
    _revoke(directory, folders, ca, now)
    return True


def _revoke(directory: Path, folders: list[Path], ca: Pair, now: datetime) -> None:
    """Write a list with the certificates in some folders beside those that it has already, then remove the folders."""
    before = _revoked(directory, ca)
    entries = {} if before is None else {entry.serial_number: entry for entry in before}
    # who knows both lists goes by the later one, whatever the clock of this machine has done since
    later = now if before is None else max(now, before.last_update_utc + CLOCK_SLACK + timedelta(seconds=1))
    for folder in folders:
        # one that another CA has signed counts nowhere
        if (pair := _load(folder / "node")) and _is_issued_by(pair.certificate, ca):
            serial = pair.certificate.serial_number
            entries[serial] = x509.RevokedCertificateBuilder(serial, now).build()
    number = 1 + (0 if before is None else before.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.certificate.subject)
        .last_update(later - CLOCK_SLACK)
        # Deploys bring the list to the nodes, and nothing else does: one that ran out would only stop a site that
        # nobody deploys for long.
        .next_update(ca.certificate.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False)
    )
    for entry in entries.values():
        builder = builder.add_revoked_certificate(entry)
    _write(directory / LIST, builder.sign(ca.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    for folder in folders:
        shutil.rmtree(folder)


def _revoked(directory: Path, ca: Pair) -> x509.CertificateRevocationList | None:
    """Return the list of a CA; None where there is none that it has signed."""
    try:
        found = x509.load_pem_x509_crl((directory / LIST).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found if found.is_signature_valid(ca.key.public_key()) else None


def _node(folder: Path, subject: CertificateName, ca: Pair, now: datetime) -> bool:
    path = folder / "node"
    present = _load(path)
    if present is not None and _speaks_for(present.certificate, subject, ca) and _valid(present.certificate, now):
        return False
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject.name)])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = ca.certificate
    certificate = (
        _builder(name, issuer.subject, public, now, min(NODE_DAYS, (issuer.not_valid_after_utc - now).days))
        .add_extension(_alternatives(subject), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    _store(path, Pair(certificate, key))
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    # Nodes of a closed network may boot with a clock that lags behind the controller's.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=not sign,
        crl_sign=not sign,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(subject: CertificateName) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in subject.names]
    return x509.SubjectAlternativeName([*names, *(x509.IPAddress(address) for address in subject.addresses)])


def _speaks_for(certificate: x509.Certificate, subject: CertificateName, ca: Pair) -> bool:
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return alternatives == _alternatives(subject) and _is_issued_by(certificate, ca)


def _is_issued_by(certificate: x509.Certificate, ca: Pair) -> bool:
    try:
        certificate.verify_directly_issued_by(ca.certificate)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - timedelta(days=RENEW_DAYS)


def _load(path: Path) -> Pair | None:
    """Return the pair at `path`.crt and `path`.key; None where one is missing, damaged, or does not fit the other."""
    try:
        certificate = x509.load_pem_x509_certificate(path.with_suffix(".crt").read_bytes())
        key = serialization.load_pem_private_key(path.with_suffix(".key").read_bytes(), password=None)
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return Pair(certificate, key)


def _store(path: Path, pair: Pair) -> None:
    key = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(path.with_suffix(".key"), key, 0o600)
    _write(path.with_suffix(".crt"), pair.certificate.public_bytes(serialization.Encoding.PEM))


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(path, content, mode)
    except OSError as error:
        raise UnavailableError(
            f"the certificate could not be written: {error.strerror}",
            where=str(path),
            hint="run as root on the reservoir node, with room on its disk",
        ) from error
