from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ForbiddenError, InputError, IntegrityError, NotFoundError
from reservoir.contents.artifact import FileArtifact, PythonArtifact
from reservoir.intake.store import Store
from reservoir.publication import scanning
from reservoir.publication.publish import publish, rollback
from reservoir.publication.scanning import Asked, require_passed
from tests.unit.reservoir.parts import artifact, make_bundle, take, wheel
from tests.unit.reservoir.scan.advisories import URLLIB3, write

POLICY = "schema: 1\nblock: {severity: high}\n"


@pytest.fixture
def advisories(tmp_path: Path) -> Path:
    """Advisories of today on urllib3."""
    today = datetime.now(UTC).isoformat()
    return write(tmp_path / "advisories", *({**entry, "modified": today} for entry in URLLIB3))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yml"
    path.write_text(POLICY)
    return path


def bundle_with(folder: Path, key: Ed25519PrivateKey, version: str, number: str = "1.0", **more: Any) -> Path:
    """A bundle with one version of urllib3."""
    folder.mkdir(exist_ok=True)
    path = wheel(folder, "urllib3", version)
    made = [(artifact(path, PythonArtifact, "urllib3", version), path)]
    return make_bundle(folder, key, version=number, made=made, attachments=more.get("attachments", {}))


@pytest.fixture
def site(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    """A site that imported a bundle with a known fault."""
    root = tmp_path / "site"
    take(bundle_with(tmp_path / "made", key, "1.24.3"), root)
    return root


def test_a_site_without_a_policy_publishes_as_before(site: Path, advisories: Path) -> None:
    scanning.site(site, Asked([advisories]))
    assert publish(site).changed


def test_a_site_with_a_policy_publishes_nothing_that_was_not_scanned(
    site: Path, advisories: Path, policy: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    policy.write_text("schema: 1\nblock: {severity: critical}\n")
    scanning.site(site, Asked([advisories], policy))
    assert publish(site).number == 1
    take(bundle_with(tmp_path / "made", key, "1.26.5", number="2.0"), site)
    with pytest.raises(ForbiddenError, match=r"small-2.0-\w+: was not scanned, but this site has a policy"):
        publish(site)
    assert Store(site).current.resolve().name == "1"
    scanning.site(site, Asked([advisories]))
    assert publish(site).number == 2


def test_a_finding_stops_the_publication_until_the_policy_bears_it(site: Path, advisories: Path, policy: Path) -> None:
    (scanned,) = scanning.site(site, Asked([advisories], policy))
    with pytest.raises(ForbiddenError, match=r"urllib3 1.24.3: CVE-2021-33503 \(high\)"):
        require_passed([scanned])
    with pytest.raises(ForbiddenError, match=r"urllib3 1.24.3: CVE-2021-33503 \(high\)"):
        publish(site)
    assert not Store(site).current.exists()
    assert not list(Store(site).publications.iterdir())
    # the policy counts as it is at the moment of the publication; nothing has to be scanned again
    day = datetime.now(UTC).date() + timedelta(days=1)
    own = site / "security" / "policy.yml"
    own.write_text(f"{POLICY}exceptions:\n  - {{id: CVE-2021-33503, reason: not reachable, expires: {day}}}\n")
    assert publish(site).changed


def test_the_report_and_its_page_are_kept_at_the_site(site: Path, advisories: Path, policy: Path) -> None:
    (scanned,) = scanning.site(site, Asked([advisories], policy))
    report = json.loads((site / "security" / f"{scanned.identity}.json").read_text())
    assert [finding["id"] for finding in report["findings"]] == ["CVE-2021-33503", "CVE-2020-26137"]
    assert "Refused by the policy" in (site / "security" / f"{scanned.identity}.html").read_text()
    assert (site / "security" / "policy.yml").read_text() == POLICY


def test_a_damaged_report_or_policy_stops_the_publication(site: Path, advisories: Path, policy: Path) -> None:
    (scanned,) = scanning.site(site, Asked([advisories], policy))
    (site / "security" / f"{scanned.identity}.json").write_text("{}")
    with pytest.raises(IntegrityError, match="the report is damaged"):
        publish(site)
    (site / "security" / "policy.yml").write_text("schema: 1\nblok: {}\n")
    with pytest.raises(InputError, match="blok: unknown key"):
        publish(site)


def test_a_policy_that_is_not_valid_does_not_become_the_sites(site: Path, advisories: Path, policy: Path) -> None:
    policy.write_text("schema: 1\nblok: {}\n")
    with pytest.raises(InputError):
        scanning.site(site, Asked([advisories], policy))
    assert not (site / "security").exists()


def test_there_is_nothing_to_scan_without_a_bundle_or_without_advisories(
    site: Path, tmp_path: Path, advisories: Path
) -> None:
    with pytest.raises(NotFoundError, match="nothing was imported yet"):
        scanning.site(tmp_path / "empty", Asked([advisories]))
    with pytest.raises(InputError, match="no advisories were given"):
        scanning.site(site, Asked([]))


def test_a_bundle_on_a_disk_is_scanned_by_its_signed_list(
    tmp_path: Path, key: Ed25519PrivateKey, advisories: Path
) -> None:
    folder = bundle_with(tmp_path / "made", key, "1.24.3")
    scanned = scanning.folder(folder, Asked([advisories]), key.public_key())
    assert "  known faults: 1 high, 1 medium; 0 excepted" in scanned.words
    assert scanned.words.startswith(f"{scanned.identity}: refused by the policy")
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        scanning.folder(folder, Asked([advisories]), Ed25519PrivateKey.generate().public_key())


def test_a_changed_bill_of_materials_is_refused(tmp_path: Path, key: Ed25519PrivateKey, advisories: Path) -> None:
    bill = {"sbom.cdx.json": b'{"components": [], "dependencies": []}'}
    folder = bundle_with(tmp_path / "made", key, "1.24.3", attachments=bill)
    assert scanning.folder(folder, Asked([advisories])).report.findings
    (folder / "sbom.cdx.json").write_text("{}")
    with pytest.raises(IntegrityError, match=r"sbom.cdx.json: was changed"):
        scanning.folder(folder, Asked([advisories]))
    (folder / "sbom.cdx.json").unlink()
    with pytest.raises(IntegrityError, match=r"sbom.cdx.json: is missing"):
        scanning.folder(folder, Asked([advisories]))


def test_a_rollback_asks_the_policy_and_names_what_it_opens(
    site: Path, advisories: Path, policy: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    """What was let through once may be what the policy refuses now."""
    scanning.site(site, Asked([advisories]))
    publish(site)
    take(bundle_with(tmp_path / "made", key, "1.26.5", number="2.0"), site)
    scanning.site(site, Asked([advisories], policy))
    assert publish(site).number == 2
    with pytest.raises(ForbiddenError, match=r"CVE-2021-33503 \(high\)"):
        rollback(site)
    assert Store(site).serving() == 2
    assert not Store(site).rolled_back()
    done = rollback(site, despite_policy=True)
    assert (done.number, done.changed) == (1, True)
    served, *faults = done.opens
    assert re.fullmatch(r"small-1\.0-\w+ is served again, small-2\.0-\w+ no longer", served)
    assert "CVE-2021-33503 (high) in urllib3 1.24.3 is there again" in faults
    rollback(site, 2)
    for report in (site / "security").glob("*.json"):
        report.write_text("{")
    assert len(rollback(site, despite_policy=True).opens) == 1, "a damaged report is no reason to stay"
    assert rollback(site, 1).opens == [], "it is served already"


def test_what_is_served_already_is_judged_again(site: Path, advisories: Path, policy: Path) -> None:
    publish(site)
    scanning.site(site, Asked([advisories], policy))
    with pytest.raises(ForbiddenError, match=r"urllib3 1.24.3: CVE-2021-33503 \(high\)"):
        publish(site)
    assert Store(site).serving() == 1
    assert not publish(site, unattended=True).changed, "a deploy that brings nothing new does not fail for it"


def test_a_rollback_despite_the_policy_does_not_become_the_regular_publication(
    site: Path, advisories: Path, policy: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    scanning.site(site, Asked([advisories]))
    publish(site)
    take(bundle_with(tmp_path / "made", key, "1.26.5", number="2.0"), site)
    scanning.site(site, Asked([advisories], policy))
    newer = publish(site)
    rollback(site, despite_policy=True)
    Store(site).withdraw(newer.bundles)
    with pytest.raises(ForbiddenError, match=r"CVE-2021-33503 \(high\)"):
        publish(site)
    assert Store(site).rolled_back()


def with_file(folder: Path, key: Ed25519PrivateKey, name: str, version: str, text: str, **file: str) -> Path:
    """A bundle of one file, which may have the name of another bundle's."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file.get("called", f"{name}.txt")
    path.write_text(text)
    return make_bundle(folder, key, name=name, version=version, made=[(artifact(path, FileArtifact, path.name), path)])


@pytest.fixture
def served() -> bool:
    """Whether the site served its first bundles before newer ones came."""
    return True


@pytest.fixture
def clash(site: Path, tmp_path: Path, key: Ed25519PrivateKey, *, served: bool) -> dict[str, str]:
    """A site whose newest `small` contradicts another bundle; identities by what they are."""
    held = {"older": Store(site).newest().popitem()[0]}
    held["other"] = take(with_file(tmp_path / "a", key, "other", "1.0", "one"), site).identity
    if served:
        publish(site)
    held["at fault"] = take(
        with_file(tmp_path / "b", key, "small", "2.0", "another", called="other.txt"), site
    ).identity
    held["new"] = take(with_file(tmp_path / "c", key, "third", "1.0", "new"), site).identity
    return held


def test_what_takes_the_place_of_a_bundle_at_fault_is_scanned_as_well(
    site: Path, advisories: Path, policy: Path, clash: dict[str, str]
) -> None:
    policy.write_text("schema: 1\nblock: {severity: critical}\n")
    scanning.site(site, Asked([advisories], policy))
    (other,), unread = scanning.standby(site, Asked([advisories]))
    assert (other.identity, unread) == (clash["older"], [])
    done = publish(site)
    assert done.bundles == sorted([clash["older"], clash["other"], clash["new"]])
    assert [problem.where for problem in done.left_out] == [f"{clash['at fault']}: other.txt"]


@pytest.mark.parametrize("served", [False])
def test_what_the_policy_refuses_takes_nobodys_place_and_the_rest_is_served(
    site: Path, advisories: Path, policy: Path, clash: dict[str, str]
) -> None:
    scanning.site(site, Asked([advisories], policy))
    unscanned = publish(site).left_out[1]
    assert str(unscanned).startswith(
        f"{clash['older']}: policy: was not scanned, but this site has a policy. Hint: run"
    )
    scanning.standby(site, Asked([advisories]))
    done = publish(site)
    assert done.bundles == sorted([clash["other"], clash["new"]])
    fault, refusal = done.left_out
    assert fault.where == f"{clash['at fault']}: other.txt"
    assert (refusal.where, "CVE-2021-33503 (high)" in refusal.reason) == (f"{clash['older']}: urllib3 1.24.3", True)


@pytest.mark.parametrize("unattended", [True, False])
def test_nothing_that_is_served_is_taken_away_as_the_policy_refuses_it(
    site: Path, advisories: Path, policy: Path, clash: dict[str, str], *, unattended: bool
) -> None:
    scanning.site(site, Asked([advisories], policy))
    with pytest.raises(
        ForbiddenError, match=rf"{clash['at fault']}: other.txt: .*\n.*{clash['older']}: was not scanned"
    ):
        publish(site, unattended=unattended)
    assert Store(site).serving() == 1


def test_what_a_rollback_goes_to_is_scanned_as_well(
    site: Path, advisories: Path, policy: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    policy.write_text("schema: 1\nblock: {severity: critical}\n")
    publish(site)
    take(bundle_with(tmp_path / "made", key, "1.26.5", number="2.0"), site)
    scanning.site(site, Asked([advisories], policy))
    publish(site)
    with pytest.raises(ForbiddenError, match=r"small-1.0-\w+: was not scanned"):
        rollback(site)
    scanning.standby(site, Asked([advisories]))
    assert rollback(site).number == 1


def test_what_cannot_be_scanned_any_more_holds_up_nothing_else(
    site: Path, advisories: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    (held,) = Store(site).imported()
    bill = {"sbom.cdx.json": b"{}"}
    damaged = take(bundle_with(tmp_path / "made", key, "1.26.5", number="2.0", attachments=bill), site).identity
    (site / "bundles" / damaged / "sbom.cdx.json").write_text("changed")
    take(bundle_with(tmp_path / "made", key, "1.26.6", number="3.0"), site)
    scans, unread = scanning.standby(site, Asked([advisories]))
    assert [scanned.identity for scanned in scans] == [held]
    assert [problem.where.partition(": ")[0] for problem in unread] == [damaged]


def test_a_policy_that_the_site_has_kept_may_name_what_is_no_ecosystem_and_tells_it(
    site: Path, advisories: Path, policy: Path
) -> None:
    """What an earlier release took stops nothing after an upgrade."""
    scanning.site(site, Asked([advisories], policy))
    text = "schema: 1\nblock: {severity: critical}\nleast: {npm: 5}\n"
    Store(site).policy.write_text(text)
    assert publish(site).changed
    (scanned,) = scanning.site(site, Asked([advisories]))
    assert "`least` names npm, of which nothing was checked" in scanned.words
    assert scanning.standby(site, Asked([advisories])) == ([], [])
    policy.write_text(text)
    with pytest.raises(InputError, match=r"policy\.yml:3: least\.npm: no ecosystem is called so"):
        scanning.site(site, Asked([advisories], policy))
