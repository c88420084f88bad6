from __future__ import annotations

import json
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common.errors import InputError, NotFoundError, PenstockError
from reservoir.artifacts.image.system import Installed
from reservoir.scan.checker import scan
from reservoir.scan.facts import Facts
from reservoir.scan.policy import ScanPolicy
from reservoir.scan.report import Report
from reservoir.scan.verdict import judge
from tests.unit.reservoir.scan.advisories import (
    HIGH,
    MEDIUM,
    NOW,
    TODAY,
    URLLIB3,
    advisory,
    bundle,
    cvss,
    deb,
    package,
    write,
)

OLD = package("python", "urllib3", "1.24.3")


def report(folder: Path, *artifacts: Any, policy: ScanPolicy = ScanPolicy(), facts: Facts = Facts()) -> Report:  # noqa: B008
    return scan(bundle(*artifacts), facts, [folder], policy, now=NOW)


def refusal(*arguments: Any, kind: type[PenstockError] = InputError, **more: Any) -> str:
    with pytest.raises(kind) as caught:
        report(*arguments, **more)
    return str(caught.value)


def test_a_finding_says_all_that_is_known(tmp_path: Path) -> None:
    made = report(write(tmp_path, *URLLIB3), OLD, facts=Facts(images={OLD.sha256: ["penstock/python:3.11"]}))
    slow, injection = made.findings
    assert (slow.id, slow.severity, slow.score, slow.fixed) == ("CVE-2021-33503", "high", 7.5, ["1.26.5"])
    assert (injection.id, injection.severity, injection.score) == ("CVE-2020-26137", "medium", 6.5)
    assert injection.names == ["CVE-2020-26137", "GHSA-wqvq-5m8c-6g24", "PYSEC-2020-148"]
    assert injection.advisories == ["GHSA-wqvq-5m8c-6g24", "PYSEC-2020-148"]
    assert [(item.filename, item.images) for item in slow.items] == [("urllib3-1.24.3.whl", ["penstock/python:3.11"])]
    assert [(c.ecosystem, c.packages, c.advisories) for c in made.checked] == [("PyPI", 1, 3)]
    assert made.counts() == [("critical", 0), ("high", 1), ("medium", 1), ("low", 0), ("none", 0), ("unknown", 0)]


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ({"severity": cvss(HIGH)}, "high"),
        ({"severity": cvss(MEDIUM), "database_specific": {"severity": "CRITICAL"}}, "medium"),
        ({"severity": cvss("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N")}, "critical"),
        ({"severity": [*cvss(MEDIUM), *cvss(HIGH)]}, "high"),
        ({"severity": cvss("CVSS:3.1/nonsense")}, "unknown"),
        # what cannot be read may say more than what lies below the default limit
        (
            {"severity": [*cvss("CVSS:4.0/nonsense"), {"type": "CVSS_V2", "score": "AV:L/AC:H/Au:M/C:N/I:N/A:P"}]},
            "unknown",
        ),
        ({"severity": [*cvss("CVSS:4.0/nonsense"), *cvss(HIGH)]}, "high"),
        (
            {"severity": [*cvss("CVSS:4.0/nonsense"), *cvss(MEDIUM)], "database_specific": {"severity": "CRITICAL"}},
            "critical",
        ),
        ({"severity": [{"type": "Ubuntu", "score": "low"}]}, "low"),
        ({"database_specific": {"severity": "MODERATE"}}, "medium"),
        ({"database_specific": {"severity": "Important"}}, "high"),
        ({"database_specific": {"severity": "not yet assigned"}}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_severity_comes_from_vectors_else_from_words(tmp_path: Path, more: dict[str, Any], severity: str) -> None:
    write(tmp_path, advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, **more))
    (finding,) = report(tmp_path, OLD).findings
    assert finding.severity == severity


def test_a_vector_of_the_package_that_cannot_be_read_leaves_the_one_of_the_advisory(tmp_path: Path) -> None:
    entry = advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, severity=cvss(HIGH))
    entry["affected"][0]["severity"] = cvss("CVSS:3.1/nonsense")
    (finding,) = report(write(tmp_path, entry), OLD).findings
    assert finding.severity == "high"


def test_what_an_advisory_leaves_empty_may_be_null(tmp_path: Path) -> None:
    entry = advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, aliases=None, severity=None, upstream=None)
    entry["affected"][0] |= {"severity": None, "versions": None}
    write(tmp_path, entry, advisory("A-2", "PyPI", "other") | {"affected": None, "summary": None, "withdrawn": None})
    assert [finding.id for finding in report(tmp_path, OLD).findings] == ["A-1"]


def test_the_first_line_of_the_details_stands_for_a_summary(tmp_path: Path) -> None:
    write(tmp_path, advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, details="What may happen.\n\nMore of it."))
    assert [finding.summary for finding in report(tmp_path, OLD).findings] == ["What may happen."]


def test_debians_urgency_is_a_severity(tmp_path: Path) -> None:
    entry = advisory("D-1", "Debian:12", "acl", {"introduced": "0"})
    entry["affected"][0]["ecosystem_specific"] = {"urgency": "unimportant"}
    (finding,) = report(write(tmp_path, entry), deb("acl", "1-1")).findings
    assert finding.severity == "none"


def test_aliases_have_the_worst_severity_that_one_of_them_says(tmp_path: Path) -> None:
    same: Any = {"aliases": ["CVE-2026-7"]}
    write(
        tmp_path,
        advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, **same),
        advisory("B-1", "PyPI", "urllib3", {"introduced": "0"}, severity=cvss(HIGH), **same),
    )
    (finding,) = report(tmp_path, OLD).findings
    assert (finding.id, finding.severity) == ("CVE-2026-7", "high")


def test_archives_and_nested_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "PyPI").mkdir()
    with zipfile.ZipFile(tmp_path / "PyPI" / "all.zip", "w") as archive:
        archive.writestr("deeper/A.json", json.dumps(URLLIB3[0]))
        archive.writestr("readme.txt", "not an advisory")
    assert len(report(tmp_path, OLD).findings) == 1
    assert len(scan(bundle(OLD), Facts(), [tmp_path / "PyPI" / "all.zip"], ScanPolicy(), now=NOW).findings) == 1


def test_nothing_to_ask_is_an_error_not_a_clean_report(tmp_path: Path) -> None:
    assert "PyPI: there are no advisories for this ecosystem" in refusal(tmp_path, OLD)
    assert "there are no advisories" in refusal(tmp_path / "absent", OLD, kind=NotFoundError)


def test_each_ecosystem_of_the_bundle_needs_advisories(tmp_path: Path) -> None:
    write(tmp_path, *URLLIB3)
    said = refusal(tmp_path, OLD, deb("acl", "1-1"), deb("acl", "2-1", "debian13"))
    assert "Debian:12: there are no advisories" in said
    assert "Debian:13: there are no advisories" in said
    policy = ScanPolicy.model_validate(
        {"schema": 1, "unchecked": [{"name": "Debian:12", "reason": "the distribution's own scanner does it"}]}
    )
    made = report(tmp_path, OLD, deb("acl", "1-1"), policy=policy)
    assert [(entry.name, entry.reason) for entry in made.not_checked] == [
        ("Debian:12", "the distribution's own scanner does it")
    ]
    assert [entry.ecosystem for entry in made.checked] == ["PyPI"]


def test_a_target_whose_ecosystem_nobody_names_is_an_error(tmp_path: Path) -> None:
    described = bundle(package("rpm", "bash", "5.1-9.el9", "rocky9"))
    unnamed = [target.model_copy(update={"osv": None}) for target in described.targets]
    with pytest.raises(InputError, match="target rocky9: nobody says which advisories"):
        scan(described.model_copy(update={"targets": unnamed}), Facts(), [tmp_path], ScanPolicy(), now=NOW)


@pytest.mark.parametrize(("days", "fresh"), [(0, True), (14, True), (15, False), (-2, False)])
def test_advisories_grow_old(tmp_path: Path, days: int, fresh: bool) -> None:
    day = (NOW - timedelta(days=days)).isoformat()
    write(tmp_path, advisory("A-1", "PyPI", "other", {"introduced": "0"}, modified=day))
    if fresh:
        assert not report(tmp_path, OLD).findings
    else:
        assert "PyPI: the newest advisory is of" in refusal(tmp_path, OLD)


def test_fresh_advisories_of_one_ecosystem_do_not_stand_for_another(tmp_path: Path) -> None:
    stale = advisory("D-1", "Debian:12", "other", {"introduced": "0"}, modified="2025-01-01T00:00:00Z")
    write(tmp_path, *URLLIB3, stale)
    said = refusal(tmp_path, OLD, deb("acl", "1-1"))
    assert "Debian:12: the newest advisory is of 2025-01-01, which is 433 days ago; 14 are allowed" in said
    assert "PyPI" not in said
    assert report(
        tmp_path, OLD, deb("acl", "1-1"), policy=ScanPolicy.model_validate({"schema": 1, "max_age_days": 500})
    )


def test_each_release_needs_fresh_advisories_of_its_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        advisory("D-1", "Debian:12", "other", {"introduced": "0"}),
        advisory("D-2", "Debian:13", "other", {"introduced": "0"}, modified="2025-01-01T00:00:00Z"),
    )
    said = refusal(tmp_path, deb("acl", "1-1"), deb("acl", "2-1", "debian13"))
    assert said.startswith("Debian:13: the newest advisory is of 2025-01-01")
    assert "Debian:12" not in said


@pytest.mark.parametrize("name", ["MINE-1", "GHSA-3"])
def test_a_file_of_ones_own_does_not_make_an_old_export_one_of_today(tmp_path: Path, name: str) -> None:
    old = "2025-01-01T00:00:00Z"
    write(
        tmp_path,
        advisory("GHSA-1", "PyPI", "other", {"introduced": "0"}, modified=old),
        advisory("GHSA-2", "PyPI", "another", {"introduced": "0"}, modified=old),
        advisory(name, "PyPI", "third", {"introduced": "0"}),
    )
    assert "PyPI: the newest advisory is of 2025-01-01" in refusal(tmp_path, OLD)


LONG_AGO = "2025-01-01T00:00:00Z"


def exported(count: int, **more: Any) -> list[dict[str, Any]]:
    """An old export of a small database; `more` is what its one package is said to have."""
    made = [advisory(f"GHSA-{n}", "PyPI", "other", {"introduced": "0"}, modified=LONG_AGO) for n in range(count)]
    for entry in made:
        entry["affected"][0] |= more
    return made


def own(count: int) -> list[dict[str, Any]]:
    return [advisory(f"GHSA-mine-{n}", "PyPI", "third", {"introduced": "0"}) for n in range(count)]


@pytest.mark.parametrize("size", [2, 12, 30])
def test_two_files_of_ones_own_do_not_make_a_small_old_export_one_of_today(tmp_path: Path, size: int) -> None:
    write(tmp_path, *exported(size), *own(2))
    assert "PyPI: the newest advisory is of 2025-01-01" in refusal(tmp_path, OLD)


def test_files_beside_an_archive_do_not_make_it_new_however_many_they_are(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "PyPI.zip", "w") as archive:
        for entry in exported(30):
            archive.writestr(f"{entry['id']}.json", json.dumps(entry))
    write(tmp_path, *own(29))
    assert "PyPI: the newest advisory is of 2025-01-01" in refusal(tmp_path, OLD)


def test_a_folder_of_ones_own_does_not_make_another_one_new_however_much_is_in_it(tmp_path: Path) -> None:
    folders = [write(tmp_path / "export", *exported(30)), write(tmp_path / "own", *own(29))]
    with pytest.raises(InputError, match="PyPI: the newest advisory is of 2025-01-01"):
        scan(bundle(OLD), Facts(), folders, ScanPolicy(), now=NOW)


def test_what_has_no_mark_of_an_export_does_not_make_new_what_has_one(tmp_path: Path) -> None:
    mark = {"database_specific": {"source": "https://example.org/GHSA.json"}}
    write(tmp_path, *exported(30, **mark), *own(29))
    assert "PyPI: the newest advisory is of 2025-01-01" in refusal(tmp_path, OLD)


def test_where_any_has_the_mark_more_of_ones_own_do_not_make_it_new_nor_fill_it_up(tmp_path: Path) -> None:
    mark = {"database_specific": {"source": "https://example.org/GHSA.json"}}
    folders = [write(tmp_path / "export", *exported(30, **mark)), write(tmp_path / "own", *own(31))]
    with pytest.raises(InputError) as refused:
        scan(bundle(OLD), Facts(), folders, ScanPolicy(), now=NOW, remembered={"PyPI": 61})
    assert "PyPI: the newest advisory is of 2025-01-01" in str(refused.value)
    assert "PyPI: there are 30 advisories; there were 61 before" in str(refused.value)


def test_what_was_withdrawn_is_no_advisory_that_was_asked(tmp_path: Path) -> None:
    write(tmp_path, advisory("A-1", "PyPI", "other", {"introduced": "0"}, withdrawn=TODAY))
    assert "PyPI: there are no advisories for this ecosystem" in refusal(tmp_path, OLD)


@pytest.mark.parametrize(("before", "least", "said"), [
    (3, {}, ""),
    (4, {}, "PyPI: there are 3 advisories; there were 4 before"),
    (4, {"PyPI": 3}, ""),
    (0, {"PyPI": 4}, "PyPI: there are 3 advisories; the policy asks for 4 at least"),
])  # fmt: skip
def test_far_fewer_advisories_than_before_are_doubt(
    tmp_path: Path, before: int, least: dict[str, int], said: str
) -> None:
    write(tmp_path, *URLLIB3)
    policy = ScanPolicy.model_validate({"schema": 1, "least": least})
    if said:
        with pytest.raises(InputError) as caught:
            scan(bundle(OLD), Facts(), [tmp_path], policy, now=NOW, remembered={"PyPI": before})
        assert str(caught.value).startswith(said)
    else:
        assert scan(bundle(OLD), Facts(), [tmp_path], policy, now=NOW, remembered={"PyPI": before}).findings


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not an OSV advisory"),
        ("[]", "not an OSV advisory"),
        ('{"id": "A-1"}', "modified: not an OSV advisory: Field required"),
        ('{"id": "A-1", "modified": "yesterday"}', "modified: not an OSV advisory"),
        ('{"id": "A-1", "modified": "9999-12-31T23:59:59-12:00"}', "modified: not an OSV advisory: no day in UTC"),
        (
            '{"id": "A-1", "modified": "2026-03-01T00:00:00Z", "withdrawn": "0001-01-01T00:00:00+14:00"}',
            "withdrawn: not an OSV advisory: no day in UTC",
        ),
        ('{"id": "A-1", "modified": "2026-03-01T00:00:00"}', "modified: not an OSV advisory"),
        (
            json.dumps(advisory("A-1", "PyPI", "demo", {"introduced": "0", "fixed": "1"})),
            "affected.0.ranges.0.events.0: not an OSV advisory: an event is one of",
        ),
    ],
)
def test_a_damaged_advisory_is_named(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    said = refusal(tmp_path, OLD)
    assert str(tmp_path / "bad.json") in said
    assert reason in said


def test_a_vector_of_the_package_that_cannot_be_read_leaves_doubt_beside_a_low_one(tmp_path: Path) -> None:
    entry = advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, severity=cvss(MEDIUM))
    entry["affected"][0]["severity"] = cvss("CVSS:3.1/nonsense")
    assert [finding.severity for finding in report(write(tmp_path, entry), OLD).findings] == ["unknown"]


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("A.json", json.dumps(URLLIB3[0]))
    content = bytearray(path.read_bytes())
    content[60:80] = bytes(20)
    path.write_bytes(content)
    assert f"{path}: A.json: the archive is damaged" in refusal(tmp_path, OLD)
    path.write_bytes(b"no archive")
    assert f"{path}: the archive is damaged" in refusal(tmp_path, OLD)


def test_images_from_elsewhere_and_files_are_told_as_not_checked(tmp_path: Path) -> None:
    inside = package("python", "urllib3", "1.26.5")
    image = package(
        "image", "penstock/python", "3.11", tag="3.11", digest="", session=True, media_type="", architectures=[]
    )
    other = package("image", "vendor/cuda", "12", tag="12", digest="", session=True, media_type="", architectures=[])
    file = package("file", "driver.run", "1")
    facts = Facts(images={inside.sha256: ["penstock/python:3.11"]})
    made = report(write(tmp_path, *URLLIB3), inside, image, other, file, facts=facts)
    assert [entry.name for entry in made.not_checked] == ["image vendor/cuda:12", "file driver.run-1.bin"]


def test_packages_inside_images_from_elsewhere_are_held_against_advisories(tmp_path: Path) -> None:
    words: Any = {"session": True, "media_type": "", "architectures": []}
    image = package("image", "vendor/tool", "25.1", tag="25.1", digest="", **words)
    shut = package("image", "vendor/shut", "1", tag="1", digest="", **words)
    listed = Installed("libssl3", "Ubuntu:22.04:LTS", "openssl", "3.0.2-0ubuntu1")
    facts = Facts(installed={image.sha256: [listed], shut.sha256: []}, unread={shut.sha256: "a layer is damaged"})
    assert "Ubuntu:22.04:LTS: there are no advisories" in refusal(tmp_path, image, shut, facts=facts)
    fixed: Any = ({"introduced": "0"}, {"fixed": "3.0.2-0ubuntu1.1"})
    write(tmp_path, advisory("U-1", "Ubuntu:22.04:LTS", "openssl", *fixed, severity=cvss(HIGH)))
    made = report(tmp_path, image, shut, facts=facts)
    (finding,) = made.findings
    assert (finding.advised, finding.severity) == ("openssl", "high")
    assert [(item.kind, item.name, item.images) for item in finding.items] == [
        ("image", "vendor/tool", ["vendor/tool:25.1"])
    ]
    assert [(entry.name, entry.reason, entry.partly) for entry in made.not_checked] == [
        (
            "image vendor/tool:25.1",
            "of its system 1 packages were asked about; nobody says what else is inside",
            True,
        ),
        ("image vendor/shut:1", "a layer is damaged", False),
    ]
    strict = ScanPolicy.model_validate({"schema": 1, "closed": "block", "block": {"severity": "critical"}})
    assert [problem.where for problem in judge(made, strict, NOW).blocking] == ["image vendor/shut:1"]


def test_the_report_is_the_same_for_the_same_bundle_and_advisories(tmp_path: Path) -> None:
    write(tmp_path, *URLLIB3)
    later = scan(bundle(OLD), Facts(), [tmp_path], ScanPolicy(), now=NOW + timedelta(days=3))
    assert report(tmp_path, OLD).encode() == later.encode()
    assert Report.model_validate_json(later.encode()) == later
