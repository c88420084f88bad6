"""The security checker in a build, and at a site: a set of packages whose constraint keeps a vulnerable version in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.reservoir.conftest import lasting_cache, penstock
from tests.integration.reservoir.rpms import Package, Upstream, Vendor
from tests.integration.reservoir.test_build import Workshop
from tests.unit.reservoir.scan.advisories import URLLIB3, advisory, write

TODAY = datetime.now(UTC)
POLICY = "schema: 1\nblock: {severity: high}\n"
BORNE = f"""{POLICY}exceptions:
  - id: CVE-2021-33503
    package: urllib3
    reason: addresses come from the site's own configuration only
    expires: {TODAY.date() + timedelta(days=1)}
  - id: CVE-2026-3
    reason: the command is not reachable for users
    expires: {TODAY.date() + timedelta(days=1)}
"""


def entries() -> list[dict[str, Any]]:
    """Advisories of today on urllib3, and on the source package of a library of jq."""
    jq = advisory(
        "DEBIAN-CVE-2026-3",
        "Debian:12",
        "libonig",
        {"introduced": "0"},
        upstream=["CVE-2026-3"],
        database_specific={"severity": "HIGH"},
    )
    return [{**entry, "modified": TODAY.isoformat()} for entry in (*URLLIB3, jq)]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The hard set boto3 with urllib3<1.25.4, and jq; locked once."""
    made = Workshop(tmp_path_factory.mktemp("workshop"), lasting_cache("scan"))
    made.content |= {
        "python": {"requirements": ["boto3<1.15", "urllib3<1.25.4"]},
        "security": {"advisories": "advisories", "policy": "policy.yml"},
    }
    made.save()
    write(made.folder / "advisories", *entries())
    made.run("lock", made.manifest)
    return made


@pytest.fixture(scope="module")
def bundle(workshop: Workshop) -> Path:
    """The bundle, whose policy bears what it finds."""
    (workshop.folder / "policy.yml").write_text(BORNE)
    return Path(json.loads(workshop.build().stdout)["bundle"])


def test_a_build_with_findings_above_the_policy_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    (workshop.folder / "policy.yml").write_text(POLICY)
    said = workshop.run("build", workshop.manifest, "--output", tmp_path, code=8).stderr
    assert "CVE-2021-33503 (high) in urllib3-1.25.3-py2.py3-none-any.whl" in said
    assert "take version 1.26.5" in said
    assert "libonig" in said
    assert "CVE-2026-3 (high) in libonig5_" in said
    assert not list(tmp_path.iterdir())


def test_the_reports_travel_with_the_bundle_and_a_second_build_changes_nothing(
    workshop: Workshop, bundle: Path
) -> None:
    report = json.loads((bundle / "scan.json").read_text())
    assert {finding["id"] for finding in report["findings"]} == {"CVE-2021-33503", "CVE-2020-26137", "CVE-2026-3"}
    assert "Passed by the policy" in (bundle / "scan.html").read_text()
    licences = {licence["name"]: licence["expression"] for licence in report["licences"]}
    assert (licences["urllib3"], licences["boto3"]) == ("MIT", "Apache-2.0")
    assert licences["libonig5"] == "BSD-2-Clause AND GPL-2.0-or-later"
    assert not json.loads(workshop.build().stdout)["changed"]
    penstock("verify", bundle)


def test_the_bill_of_materials_is_valid_and_complete(bundle: Path) -> None:
    # two seconds, which each worker would take that only collects
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (bundle / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    listed = json.loads((bundle / "bundle.json").read_text())["artifacts"]
    assert {component["hashes"][0]["content"] for component in json.loads(text)["components"]} == {
        artifact["sha256"] for artifact in listed
    }


def test_a_site_scans_again_with_its_own_policy_and_newer_advisories(
    workshop: Workshop, bundle: Path, tmp_path: Path
) -> None:
    root, policy = tmp_path / "site", tmp_path / "policy.yml"
    penstock("import", "--trust-first", bundle, "--root", root)
    policy.write_text(POLICY)
    advisories: list[str | Path] = ["--advisories", workshop.folder / "advisories"]
    said = penstock("scan", "--root", root, *advisories, "--policy", policy, code=8)
    assert "known faults: 2 high, 1 medium; 0 excepted" in said.stdout
    assert "CVE-2021-33503" in penstock("publish", "--root", root, code=8).stderr
    policy.write_text(BORNE)
    penstock("scan", "--root", root, *advisories, "--policy", policy)
    penstock("publish", "--root", root)
    stale = write(tmp_path / "stale", *({**entry, "modified": "2026-01-01T00:00:00Z"} for entry in entries()))
    refused = penstock("scan", bundle, "--advisories", stale, code=2).stderr
    assert "PyPI: the newest advisory is of 2026-01-01" in refused
    assert "Debian:12: the newest advisory is of 2026-01-01" in refused


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    made = Vendor(tmp_path / "gnupg", "vendor")
    yield made
    made.close()


def test_rpm_packages_are_held_against_the_advisories_that_their_target_names(vendor: Vendor, tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "vendor", vendor)
    upstream.add(Package("lib", version="2.5", release="1.el9", epoch=1, arch="x86_64"))
    upstream.index()
    (tmp_path / "workshop").mkdir()
    workshop = Workshop(tmp_path / "workshop")
    (workshop.folder / "vendor.asc").write_text(upstream.vendor.public)
    workshop.content = {
        "schema": 1,
        "name": "small",
        "version": "1.0",
        "targets": [{"name": "rocky9", "os": "rpm", "release": "9", "osv": "Rocky Linux:9", "sources": ["vendor"]}],
        "sources": [{"name": "vendor", "kind": "rpm", "url": upstream.folder.as_uri(), "keys": ["vendor.asc"]}],
        "rpm": {"nodes": ["lib"]},
    }
    workshop.save()
    workshop.run("lock", workshop.manifest)
    made = Path(json.loads(workshop.build().stdout)["bundle"])
    fixed = [
        advisory("RLSA-1", "Rocky Linux:9", "lib", {"introduced": "0"}, {"fixed": fixed}, modified=TODAY.isoformat())
        for fixed in ("1:2.5-1.el9_2", "9.0-1.el9")
    ]
    for entry, count in zip(fixed, (1, 0), strict=True):
        report = tmp_path / "report.json"
        words: list[str | Path] = ["--advisories", write(tmp_path / "advisories", entry), "--json", report]
        penstock("scan", made, *words, code=8 if count else 0)
        said = json.loads(report.read_text())
        assert len(said["findings"]) == count
        assert [(licence["name"], licence["expression"]) for licence in said["licences"]] == [("lib", "MIT")]
    (component,) = [c for c in json.loads((made / "sbom.cdx.json").read_text())["components"] if c["name"] == "lib"]
    assert component["purl"] == "pkg:rpm/rocky-linux/lib@2.5-1.el9?arch=x86_64&distro=rocky-linux-9&epoch=1"
