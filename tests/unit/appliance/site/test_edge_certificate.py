"""A certificate of the company's own authority: what is wrong with one, and the copies that the controller keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from appliance.site import edge_certificate, inventory, pki
from appliance.site.model import Site
from appliance.site.service_checks import company_certificate
from common.checks import CheckState
from common.errors import InputError

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
NAMES = ("gpu.example.com", "penstock.example.com")


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Company:
    """An authority, and certificates by it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.root = self._sign("Company", self.key.public_key(), (), 3650, 0)

    def issue(self, *names: str, days: int = 365, since: int = 0) -> tuple[bytes, bytes]:
        """A certificate and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        return _pem(self._sign("site", key.public_key(), names, days, since)), _key(key)

    def _sign(self, who: str, public: Any, names: tuple[str, ...], days: int, since: int) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(who))
            .issuer_name(_name("Company"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW + timedelta(days=since - 1))
            .not_valid_after(NOW + timedelta(days=days))
        )
        if names:
            said = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(said, critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(key: ec.EllipticCurvePrivateKey, passphrase: bytes = b"") -> bytes:
    how = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


@pytest.fixture(scope="module")
def company() -> Company:
    return Company()


def site(folder: Path, *names: str, **edge: Any) -> Site:
    given = {"names": list(names or NAMES), "certificate_file": f"{folder}/c.pem", "key_file": f"{folder}/k.pem"} | edge
    master = {"name": "m1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}
    return Site.model_validate({"name": "lab", "nodes": [master], "edge": given})


def give(folder: Path, certificate: bytes, key: bytes) -> None:
    (folder / "c.pem").write_bytes(certificate)
    (folder / "k.pem").write_bytes(key)


def reasons(folder: Path, *names: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        edge_certificate.require(site(folder, *names), folder / "state", now=NOW)
    assert all(problem.hint for problem in caught.value.problems)
    return [f"{problem.where}: {problem.reason}".replace(f"{folder}/", "") for problem in caught.value.problems]


def test_one_with_its_chain_is_taken_a_star_covers_names_below(company: Company, tmp_path: Path) -> None:
    certificate, key = company.issue(*NAMES)
    give(tmp_path, certificate + _pem(company.root), key)
    edge_certificate.require(site(tmp_path), tmp_path / "state", now=NOW)
    give(tmp_path, *company.issue("*.example.com"))
    edge_certificate.require(site(tmp_path), tmp_path / "state", now=NOW)
    assert reasons(tmp_path, "a.b.example.com") == ["edge.certificate_file: c.pem does not speak for a.b.example.com"]


def test_what_is_wrong_with_one_is_told_at_once(company: Company, tmp_path: Path) -> None:
    certificate, key = company.issue("gpu.example.com", days=-0)
    give(tmp_path, certificate, company.issue("x.example.com")[1])
    assert reasons(tmp_path) == [
        "edge.key_file: k.pem is not the key of c.pem",
        "edge.certificate_file: c.pem does not speak for penstock.example.com",
        "edge.certificate_file: c.pem: that of CN=site ended on 2026-11-24",
    ]
    give(tmp_path, company.issue(*NAMES, since=3)[0], b"no key")
    assert reasons(tmp_path) == [
        "edge.key_file: k.pem is no private key in PEM without a passphrase",
        "edge.certificate_file: c.pem: that of CN=site counts only from 2026-11-26",
    ]
    give(tmp_path, b"-----BEGIN", key)
    assert reasons(tmp_path) == ["edge.certificate_file: c.pem is no certificate in PEM"]


def test_a_key_with_a_passphrase_and_a_chain_in_another_order_are_refused(company: Company, tmp_path: Path) -> None:
    certificate, _ = company.issue(*NAMES)
    own = ec.generate_private_key(ec.SECP256R1())
    give(tmp_path, certificate, _key(own, b"secret"))
    assert reasons(tmp_path) == ["edge.key_file: k.pem is no private key in PEM without a passphrase"]
    other, key = company.issue(*NAMES)
    give(tmp_path, other + certificate, key)
    assert reasons(tmp_path) == ["edge.certificate_file: c.pem: CN=site did not make the one before it"]


def test_copies_follow_the_files_outlive_them_and_go_with_the_setting(company: Company, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    assert edge_certificate.until(state) is None
    give(tmp_path, *company.issue(*NAMES))
    named = site(tmp_path)
    assert [edge_certificate.keep(named, state), edge_certificate.keep(named, state)] == [True, False]
    assert {path.name: path.stat().st_mode & 0o777 for path in state.iterdir()} == {
        "edge.crt": 0o600,
        "edge.key": 0o600,
    }
    assert edge_certificate.until(state) == (NOW + timedelta(days=365)).timestamp()
    (tmp_path / "c.pem").unlink()
    (tmp_path / "k.pem").unlink()
    edge_certificate.require(named, state, now=NOW)
    assert not edge_certificate.keep(named, state), "as on a controller that was rebuilt from a backup"
    without = site(tmp_path, certificate_file=None, key_file=None)
    assert [edge_certificate.keep(without, state), edge_certificate.keep(without, state)] == [True, False]
    assert list(state.iterdir()) == []
    with pytest.raises(InputError, match=r"edge\.certificate_file: .*c\.pem cannot be read: No such file"):
        edge_certificate.require(named, state, now=NOW)


def test_one_that_does_not_speak_for_the_names_of_apps_is_refused(company: Company, tmp_path: Path) -> None:
    named = site(tmp_path, apps_name="apps.example.com")
    give(tmp_path, *company.issue(*NAMES, "apps.example.com", "*.example.com"))
    with pytest.raises(InputError, match=r"does not speak for \*\.apps\.example\.com\. Hint"):
        edge_certificate.require(named, tmp_path / "state", now=NOW)
    give(tmp_path, *company.issue(*NAMES, "*.apps.example.com"))
    edge_certificate.require(named, tmp_path / "state", now=NOW)


@pytest.mark.parametrize(
    ("edge", "said"),
    [
        ({"key_file": None}, "belong together"),
        ({"names": []}, "a certificate is for `names`, and there are none"),
        ({"names": ["gpu"]}, "names"),
        ({"names": ["*.example.com"]}, "names"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(tmp_path: Path, edge: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        site(tmp_path, **edge)


def test_people_call_by_the_first_name_and_nodes_know_all(tmp_path: Path) -> None:
    named = site(tmp_path)
    urls = (named.console_url, named.api_url, named.apps_url)
    assert urls == ("https://gpu.example.com", "https://gpu.example.com:56789", "https://gpu.example.com:9443")
    (node,) = inventory.build(named, version="1")["all"]["vars"]["site_nodes"]
    assert node["aliases"] == ["penstock", "reservoir", *NAMES]
    (certificate,) = pki.certificate_names(named)
    assert set(NAMES) < set(certificate.names), "who has the site's authority needs no other certificate"


def test_one_that_ends_soon_is_told_for_no_deploy_renews_it() -> None:
    said = {days: company_certificate((NOW + timedelta(days=days)).timestamp(), NOW) for days in (31, 29, 6)}
    states = {days: check.state for days, check in said.items()}
    assert states == {31: CheckState.OK, 29: CheckState.WARN, 6: CheckState.FAIL}
    assert "edge.certificate_file" in said[6].hint
