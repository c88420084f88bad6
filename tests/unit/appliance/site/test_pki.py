"""The site's CA and node certificates."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from appliance.site import pki
from appliance.site.model import Site
from common.errors import NotFoundError, UnavailableError

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def site_of(*nodes: dict[str, Any]) -> Site:
    return Site.model_validate({"name": "lab", "nodes": list(nodes)})


MASTER: dict[str, Any] = {"name": "master1", "address": "10.0.0.2", "roles": ["reservoir", "master"]}
WORKER: dict[str, Any] = {"name": "worker1", "address": "10.0.0.3", "roles": ["worker"], "agent_port": 6001}
SITE = site_of(MASTER, WORKER)


def certificate(directory: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((directory / "nodes" / name / "node.crt").read_bytes())


def content(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_issue_makes_certificates_that_the_ca_vouches_for(tmp_path: Path) -> None:
    assert pki.issue(SITE, tmp_path, now=NOW) is True
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    policy = PolicyBuilder().store(Store([ca])).time(NOW)
    for name in ("master1", "worker1"):
        node = certificate(tmp_path, name)
        policy.build_server_verifier(x509.DNSName(name)).verify(node, [])
        policy.build_client_verifier().verify(node, [])
        assert node.subject.rfc4514_string() == f"CN={name}"


def test_names_and_addresses_of_a_node(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    master, worker = (
        certificate(tmp_path, name).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for name in ("master1", "worker1")
    )
    assert set(master.get_values_for_type(x509.DNSName)) == {"master1", "penstock", "reservoir", "localhost"}
    assert set(worker.get_values_for_type(x509.DNSName)) == {"worker1", "localhost"}
    assert worker.get_values_for_type(x509.IPAddress) == [IPv4Address("10.0.0.3"), IPv4Address("127.0.0.1")]


def test_both_ends_of_a_connection_may_use_it(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    usage = certificate(tmp_path, "worker1").extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    for key in tmp_path.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        load_pem_private_key(key.read_bytes(), password=None)
    assert stat.S_IMODE((tmp_path / "nodes" / "worker1").stat().st_mode) == 0o700


def test_a_second_issue_changes_nothing(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    before = content(tmp_path)
    assert pki.issue(SITE, tmp_path, now=NOW + timedelta(days=1)) is False
    assert content(tmp_path) == before


def test_a_new_address_renews_that_node_alone(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    before = content(tmp_path)
    assert pki.issue(site_of(MASTER, {**WORKER, "address": "10.0.0.9"}), tmp_path, now=NOW) is True
    changed = {Path(path).parent.name for path, data in content(tmp_path).items() if before[path] != data}
    assert changed == {"worker1"}


def test_nodes_are_renewed_before_they_expire_and_the_ca_stays(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    ca = (tmp_path / "ca.crt").read_bytes()
    assert pki.issue(SITE, tmp_path, now=NOW + timedelta(days=pki.NODE_DAYS - pki.RENEW_DAYS - 1)) is False
    late = NOW + timedelta(days=pki.NODE_DAYS - pki.RENEW_DAYS + 1)
    assert pki.issue(SITE, tmp_path, now=late) is True
    assert (tmp_path / "ca.crt").read_bytes() == ca
    assert certificate(tmp_path, "worker1").not_valid_after_utc > late + timedelta(days=pki.RENEW_DAYS)


def test_no_node_outlives_the_ca(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    late = NOW + timedelta(days=pki.CA_DAYS - pki.RENEW_DAYS - 10)
    pki.issue(SITE, tmp_path, now=late)
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    assert certificate(tmp_path, "worker1").not_valid_after_utc <= ca.not_valid_after_utc


@pytest.mark.parametrize("damage", ["nodes/worker1/node.key", "nodes/worker1/node.crt", "ca.key", "ca.crl"])
def test_damaged_files_are_made_anew(tmp_path: Path, damage: str) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    (tmp_path / damage).write_text("not a key")
    assert pki.issue(SITE, tmp_path, now=NOW) is True
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    certificate(tmp_path, "worker1").verify_directly_issued_by(ca)
    assert pki.issue(SITE, tmp_path, now=NOW) is False


def test_a_folder_that_cannot_be_made_is_said_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "pki").write_text("a file where the folder should be")
    with pytest.raises(UnavailableError) as caught:
        pki.issue(SITE, tmp_path / "pki" / "below", now=NOW)
    assert "could not be written" in str(caught.value)
    assert caught.value.problems[0].hint


def revoked(directory: Path) -> set[int]:
    """The serial numbers in the list of a CA, which has signed it and lets it hold as long as itself."""
    ca = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
    found = x509.load_pem_x509_crl((directory / "ca.crl").read_bytes())
    assert found.is_signature_valid(ca.public_key())  # type: ignore[arg-type]
    assert found.next_update_utc == ca.not_valid_after_utc
    return {entry.serial_number for entry in found}


def test_nobody_is_revoked_at_first_and_a_node_that_left_is_for_good(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    assert revoked(tmp_path) == set()
    gone = certificate(tmp_path, "worker1").serial_number
    assert pki.issue(site_of(MASTER), tmp_path, now=NOW + timedelta(days=1)) is True
    assert revoked(tmp_path) == {gone}
    assert not (tmp_path / "nodes/worker1").exists(), "its key is of no use any more"
    assert pki.issue(site_of(MASTER), tmp_path, now=NOW + timedelta(days=2)) is False
    pki.issue(SITE, tmp_path, now=NOW + timedelta(days=3))
    assert revoked(tmp_path) == {gone}
    assert certificate(tmp_path, "worker1").serial_number != gone


def test_what_is_renewed_is_not_revoked_for_it_is_in_use_until_its_node_has_the_new_one(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    pki.issue(site_of(MASTER, {**WORKER, "address": "10.0.0.9"}), tmp_path, now=NOW)
    assert revoked(tmp_path) == set()


def test_a_certificate_that_was_stolen_is_revoked_and_its_node_gets_another_one(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    stolen = certificate(tmp_path, "worker1").serial_number
    pki.revoke(tmp_path, "worker1", now=NOW)
    assert pki.issue(SITE, tmp_path, now=NOW) is True
    assert revoked(tmp_path) == {stolen}
    assert certificate(tmp_path, "worker1").serial_number != stolen
    with pytest.raises(NotFoundError):
        pki.revoke(tmp_path, "worker9", now=NOW)


def test_a_list_comes_after_the_one_before_whatever_the_clock_says(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    before = x509.load_pem_x509_crl((tmp_path / "ca.crl").read_bytes()).last_update_utc
    pki.issue(site_of(MASTER), tmp_path, now=NOW - timedelta(hours=5))
    assert x509.load_pem_x509_crl((tmp_path / "ca.crl").read_bytes()).last_update_utc > before


def test_a_site_that_was_deployed_before_there_were_lists_gets_one(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    (tmp_path / "ca.crl").unlink()
    before = content(tmp_path)
    assert pki.issue(SITE, tmp_path, now=NOW) is True
    assert {path for path in content(tmp_path) if path not in before} == {str(tmp_path / "ca.crl")}
    assert revoked(tmp_path) == set()


def test_a_new_ca_begins_a_list_of_its_own(tmp_path: Path) -> None:
    pki.issue(SITE, tmp_path, now=NOW)
    pki.issue(site_of(MASTER), tmp_path, now=NOW)
    (tmp_path / "ca.key").write_text("not a key")
    pki.issue(site_of(MASTER), tmp_path, now=NOW)
    assert revoked(tmp_path) == set()


def test_the_controller_has_a_certificate_of_its_own(tmp_path: Path) -> None:
    assert pki.issue(SITE, tmp_path, now=NOW) is True
    assert pki.issue(SITE, tmp_path, now=NOW) is False
    own = x509.load_pem_x509_certificate((tmp_path / "controller/node.crt").read_bytes())
    assert own.subject.rfc4514_string() == "CN=controller.penstock", "no node can have a name with a dot"
    assert stat.S_IMODE((tmp_path / "controller/node.key").stat().st_mode) == 0o600
